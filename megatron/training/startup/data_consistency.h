// Checks that all ranks that a launcher started were given the same files. Each host may keep them in a place of its
// own.
#pragma once

#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/comm/process_group.h"
#include "megatron/datasets/dataset_builder.h"

namespace megatron {

/// Compares by file_fingerprint() what the n-th file of each rank holds, where each rank finds it.
/// @throw DataError on all ranks, with every file that differs and who has what
void require_same_files(const std::vector<std::string>& paths, const FileSystem& files, const ProcessGroup& world);

/// Compares some samples of each data set: ranks with the same files may mix or shuffle them differently, by weights in
/// the lists of data or by caches. @throw DataError on all ranks
void require_same_samples(const GptDatasets& datasets, const ProcessGroup& world);

}  // namespace megatron
