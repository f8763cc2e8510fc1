// Parts of tensors in device memory for the checkpoint writer.
#pragma once

#include <memory>

#include "megatron/core/context.h"
#include "megatron/dist_checkpointing/tensor_source.h"
#include "megatron/training/checkpoint_layout.h"

namespace megatron {

/// Copies to the host piece by piece as the writer asks, so that a save needs no second copy of the model; a part with
/// strides is gathered when it is first asked for.
/// @param tensor  contiguous: what the rank holds; `chunk` lies in it. Stays as it is until the file is written.
std::unique_ptr<TensorSource> make_device_source(const Context& ctx, const Tensor& tensor,
                                                 const CheckpointChunk& chunk);

}  // namespace megatron
