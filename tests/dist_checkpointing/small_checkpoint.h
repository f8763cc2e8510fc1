// A checkpoint of a few tensors and objects whose values depend on a seed, written by several ranks.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "megatron/dist_checkpointing/checkpoint_directory.h"
#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/dist_checkpointing/checkpoint_writer.h"

namespace megatron {

/// begin, two ranks' files, commit.
void save_small(FileSystem& files, CheckpointDirectory& directory, int64_t iteration, int seed);
/// Says whether the checkpoint in a directory is the one of this seed, whole.
::testing::AssertionResult holds_small(const FileSystem& files, const std::string& path, int seed);

}  // namespace megatron
