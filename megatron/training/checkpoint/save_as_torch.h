// A running trainer's checkpoint in the form torch.
#pragma once

#include <string>

#include "megatron/base/file_system.h"
#include "megatron/training/trainer.h"

namespace megatron {

/// Writes this rank's folder of the form torch (LegacyWriter) beside a whole checkpoint of the form torch_dist, from
/// which it is made. Of the ranks that hold the same part of the model the first writes; all call it.
/// @param directory  has the index and the files of all ranks.
void write_folder_of_rank(FileSystem& files, const std::string& directory, Trainer& trainer);

}  // namespace megatron
