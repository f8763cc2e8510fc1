// Parts of tensors in device memory for the checkpoint writer.
#pragma once

#include <functional>
#include <memory>

#include "megatron/core/context.h"
#include "megatron/dist_checkpointing/tensor_source.h"
#include "megatron/training/checkpoint/checkpoint_layout.h"

namespace megatron {

/// Copies to the host piece by piece as the writer asks, so that a save needs no second copy of the model; a part with
/// strides is gathered when it is first asked for, and let go behind its last piece.
/// @param tensor  what the rank holds, contiguous, as it is until the file is written; `chunk` lies in it. Called when
///                the first piece is asked for.
std::unique_ptr<TensorSource> make_device_source(const Context& ctx, std::function<Tensor()> tensor, DType dtype,
                                                 const CheckpointChunk& chunk);

}  // namespace megatron
