// The one reduction of host memory, for every backend that owns one.
#pragma once

#include <cstdint>
#include <span>

#include "megatron/comm/operation.h"

namespace megatron {

/// outputs[j][i] = inputs[0][i] op inputs[1][i] op ... for all i < num_elements and every j, so the bits depend on
/// neither the split into calls nor on the caller. An output may be one of the inputs. Sums are formed in fp32 and
/// rounded once to the dtype; fp64 in fp64; integers exactly, modulo their range. kMax and kMin keep NaN.
/// @param dtype float64, float32, bfloat16, float16, int64, int32 or uint8.
void reduce_in_rank_order(DType dtype, ReduceOp reduce, std::span<const void* const> inputs,
                          std::span<void* const> outputs, int64_t num_elements);

}  // namespace megatron
