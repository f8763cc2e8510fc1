// Which buffers and buckets a model chunk gets: a pure function of its parameters and of the sizes of the groups.
// Megatron Core: core/distributed/distributed_data_parallel.py, partition_buckets() of param_and_grad_buffer.py.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "megatron/core/dtype.h"
#include "megatron/distributed/buffer_layout.h"
#include "megatron/distributed/distributed_data_parallel_config.h"

namespace megatron {

/// A parameter, as the plan sees it.
struct PlannedParameter {
  int64_t num_elements = 0;
  DType dtype = DType::kFloat32;
  bool is_trainable = true;
  bool is_expert = false;            // lives in the expert grid
  bool is_shared_embedding = false;  // tied between pipeline stages
};

/// Sizes of groups, and places in them.
struct DataParallelSizes {
  int64_t dp = 1, dp_cp = 1, expt_dp = 1;  // all optimizer instances together
  int64_t pipeline_rank = 0;
  int64_t chunk = 0;                     // of this rank
  int64_t elements_of_other_chunks = 0;  // of this rank; count for num_buckets
};

/// One contiguous buffer for parameters of one dtype and one group.
struct BufferPlan {
  bool is_expert = false;
  DType param_dtype = DType::kFloat32, grad_dtype = DType::kFloat32;
  double gradient_scaling_factor = 1;  // applied before the collective
  std::vector<size_t> parameters;      // numbers in the chunk, in registration order
  BufferLayout layout;                 // entry i is parameters[i]
};

struct DataParallelPlan {
  struct Bucket {
    size_t buffer = 0, bucket = 0;
    bool operator==(const Bucket&) const = default;
  };
  std::optional<int64_t> bucket_size;  // none: one bucket
  std::vector<BufferPlan> buffers;     // dense ones, then those of experts
  /// Buckets that start together: alone, but all of a chunk after the first, which does its communication in the
  /// bubble of the pipeline.
  std::vector<std::vector<Bucket>> groups;

  /// @throw ConfigError if the config contradicts itself.
  static DataParallelPlan make(std::span<const PlannedParameter> parameters, const DataParallelSizes& sizes,
                               const DistributedDataParallelConfig& config);
};

}  // namespace megatron
