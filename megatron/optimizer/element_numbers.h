// The elements of the whole tensor that a rank steps.
#pragma once

#include "megatron/autograd/parameter.h"
#include "megatron/kernels/stochastic_rounding.h"

namespace megatron {

/// Numbers of the elements of a rank's shard from `first` on. @throw NotSupported for a shard of more runs than
/// kernels::ElementNumbers has.
kernels::ElementNumbers element_numbers_of(const Parameter& parameter, int64_t first);

}  // namespace megatron
