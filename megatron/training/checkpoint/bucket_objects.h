// The objects that Megatron keeps beside the flat buckets of a distributed optimizer.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "megatron/dist_checkpointing/torch_file.h"
#include "megatron/distributed/data_parallel_plan.h"

namespace megatron {

/// Python's tuple of the dtypes of parameters and gradients: "(torch.bfloat16, torch.float32)"
std::string bucket_dtypes(const BufferPlan& plan);

/// The tuple itself. @param graph  owns it.
pickle::Object& bucket_dtypes_object(pickle::Graph& graph, const BufferPlan& plan);

/// [[{(parameters' dtype, gradients' dtype): [sizes]}]]: the sizes of the buckets of all buffers.
/// @param buffers  bucket_dtypes() and sizes of each
TorchObject bucket_sizes_object(const std::vector<std::pair<std::string, std::vector<int64_t>>>& buffers);

}  // namespace megatron
