#include "megatron/comm/reduce.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <type_traits>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr int64_t kBlock = 1024;  // elements summed at a time: accumulators and one block of a rank stay in L1

/// Unsigned for integers: their sums wrap as defined, and wrapping is exact modulo the range.
template <class T>
using Accumulator =
    std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, std::type_identity<ComputeType<T>>>::type;

template <class T>
void combine(ReduceOp reduce, const T* input, int64_t n, Accumulator<T>* sums) {
  if (reduce == ReduceOp::kSum || reduce == ReduceOp::kAverage) {
    for (int64_t i = 0; i < n; ++i) sums[i] = static_cast<Accumulator<T>>(sums[i] + Accumulator<T>(input[i]));
    return;
  }
  using Ordered = std::conditional_t<std::is_integral_v<T>, T, Accumulator<T>>;
  const auto keep = [&](auto is_better) {
    for (int64_t i = 0; i < n; ++i) {
      const Ordered value = input[i], best = static_cast<Ordered>(sums[i]);
      bool is_nan = false;
      if constexpr (std::is_floating_point_v<Ordered>) is_nan = std::isnan(value);
      sums[i] = static_cast<Accumulator<T>>(is_better(value, best) || is_nan ? value : best);
    }
  };
  reduce == ReduceOp::kMax ? keep(std::greater<Ordered>()) : keep(std::less<Ordered>());
}

template <class T>
void reduce_blocks(ReduceOp reduce, std::span<const void* const> inputs, std::span<void* const> outputs, int64_t n) {
  std::array<Accumulator<T>, kBlock> sums;
  for (int64_t begin = 0; begin < n; begin += kBlock) {
    const int64_t length = std::min(kBlock, n - begin);
    const auto block = [&](size_t rank) { return static_cast<const T*>(inputs[rank]) + begin; };
    std::transform(block(0), block(0) + length, sums.begin(), [](T value) { return Accumulator<T>(value); });
    for (size_t rank = 1; rank < inputs.size(); ++rank) combine<T>(reduce, block(rank), length, sums.data());
    if constexpr (!std::is_integral_v<T>)
      if (reduce == ReduceOp::kAverage)
        for (int64_t i = 0; i < length; ++i) sums[static_cast<size_t>(i)] /= static_cast<Accumulator<T>>(inputs.size());
    for (void* output : outputs)
      std::transform(sums.begin(), sums.begin() + length, static_cast<T*>(output) + begin,
                     [](Accumulator<T> sum) { return static_cast<T>(sum); });
  }
}

}  // namespace

void reduce_in_rank_order(DType dtype, ReduceOp reduce, std::span<const void* const> inputs,
                          std::span<void* const> outputs, int64_t num_elements) {
  switch (dtype) {
    case DType::kFloat64:
      return reduce_blocks<double>(reduce, inputs, outputs, num_elements);
    case DType::kFloat32:
      return reduce_blocks<float>(reduce, inputs, outputs, num_elements);
    case DType::kBFloat16:
      return reduce_blocks<BFloat16>(reduce, inputs, outputs, num_elements);
    case DType::kFloat16:
      return reduce_blocks<Float16>(reduce, inputs, outputs, num_elements);
    case DType::kInt64:
      return reduce_blocks<int64_t>(reduce, inputs, outputs, num_elements);
    case DType::kInt32:
      return reduce_blocks<int32_t>(reduce, inputs, outputs, num_elements);
    case DType::kUInt8:
      return reduce_blocks<uint8_t>(reduce, inputs, outputs, num_elements);
    default:
      throw DtypeError(fmt::format("[reduce] {} cannot be reduced", name_of(dtype)));
  }
}

}  // namespace megatron
