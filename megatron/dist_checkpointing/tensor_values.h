// Values of stored tensors of any element type, a piece at a time.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "megatron/core/box.h"
#include "megatron/dist_checkpointing/element_type.h"

namespace megatron {

/// Says whether values_of() can convert elements of this type. Complex numbers and types below a byte have bits alone.
bool has_values(ElementType type);

/// Contiguous elements as double. @throw NotSupported unless has_values().
std::vector<double> values_of(ElementType type, std::span<const std::byte> elements);

/// Boxes of at most `max_elements` that cover a tensor in row-major order, each contiguous in it.
std::vector<Box> cut_into_slabs(const Shape& shape, int64_t max_elements);

}  // namespace megatron
