// Checks that all ranks that a launcher started were given the same flags and files.
#pragma once

#include "megatron/base/file_system.h"
#include "megatron/training/config/pretrain_config.h"

namespace megatron {

class World;

/// Compares the resolved configuration of all ranks of `world`, each of which calls this with its own before it makes
/// other groups, and the files of data and tokenizer. Ranks that differ would train different replicas without a word,
/// or wait for each other until the timeout. Where data, tokenizers, caches and logs lie, and the number of threads,
/// may differ. @param files  where the data lies
/// @throw ConfigError on all ranks, with every flag that differs, its values and who has them; DataError for files
void require_same_config(const PretrainConfig& config, const FileSystem& files, World& world);

}  // namespace megatron
