// Finds the file of matmul algorithms that a run uses.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/comm/process_group.h"
#include "megatron/core/device.h"
#include "megatron/kernels/cuda/matmul/matmul_choices.h"
#include "megatron/training/startup/device_choice.h"

namespace megatron {

struct MatmulChoicesQuery {
  std::optional<std::string>
      file;  // --matmul-choices: a path or kNoMatmulChoices; none: one in `folders`, if it is there
  std::vector<std::string> folders;  // where files named after GPUs may be: the first that has one counts
  std::string gpu;                   // of this rank
  int64_t library_version = 0;       // of cuBLASLt
  bool takes_tf32 = false;           // products of fp32, for which nobody measures algorithms
};
inline constexpr const char* kNoMatmulChoices = "none";

struct AgreedMatmulChoices {
  kernels::MatmulChoices choices;  // empty: the library's own are used
  std::string text;                // for the banner: which file, how many products; or why there is none
};

/// Every rank of `world` calls it and gets the same. Rank 0 looks for the file and reads it. One that was found in a
/// folder and is not for the GPU and the library of every rank is not used.
/// @throw ConfigError if the file of --matmul-choices is not for them; NotSupported if it is asked for with TF32;
/// IoError, DataError if a file cannot be read
AgreedMatmulChoices agree_on_matmul_choices(const MatmulChoicesQuery& query, const FileSystem& files,
                                            const ProcessGroup& world);

/// The same for a run of `config` on `device`. On the CPU there are no choices, and no text.
/// @throw NotSupported if choices are asked for there
AgreedMatmulChoices matmul_choices_for(const DeviceChoice& device, const PretrainConfig& config,
                                       const std::vector<std::string>& folders, const FileSystem& files,
                                       const ProcessGroup& world);

/// "matrix products: 14 of 16 shapes by measured algorithms", and how to measure the others.
std::string matmul_use_text(const kernels::MatmulUse& use);
/// The same of the matmuls that have run on `device`.
std::string matmul_use_text(const Device& device);

}  // namespace megatron
