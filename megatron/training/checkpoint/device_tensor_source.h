// Parts of tensors in device memory for the checkpoint writer.
#pragma once

#include <functional>
#include <memory>

#include "megatron/core/context.h"
#include "megatron/dist_checkpointing/tensor_source.h"
#include "megatron/training/checkpoint/checkpoint_layout.h"

namespace megatron {

/// Copies to the host piece by piece as the writer asks, so that a save needs no second copy of the model; a part with
/// strides is gathered when its first piece is read, and freed after its last one.
/// @param tensor  the contiguous tensor of the rank, unchanged until the file is written; it holds `chunk`. Called when
///                the first piece is read.
std::unique_ptr<TensorSource> make_device_source(const Context& ctx, std::function<Tensor()> tensor, DType dtype,
                                                 const CheckpointChunk& chunk);

}  // namespace megatron
