// The factors of dropout, many elements of a row at a time.
#pragma once

#include "megatron/kernels/cpu/convert.h"
#include "megatron/kernels/dropout.h"

namespace megatron::kernels {

/// factors[i] = 0 where feature begin + i of the row is dropped, else 1 / (1 - rate); i in [0, n), n <= kPieceElements.
/// The mask's rate must not be 0. C is float or double.
template <class C>
void dropout_factors(const DropoutMask& mask, int64_t row, int64_t begin, int64_t n, C* factors);

}  // namespace megatron::kernels
