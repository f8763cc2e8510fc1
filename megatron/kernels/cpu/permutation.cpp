#include "megatron/kernels/permutation.h"

#include "megatron/kernels/cpu/convert.h"
#include "megatron/kernels/cpu/parallel.h"

namespace megatron::kernels {

void sort_by_expert(const CpuStream&, const SortByExpertArgs& args) {
  const int64_t t = args.map.shape[0], e = args.map.shape[1], s = args.slots.shape[1], capacity = args.tokens.shape[0];
  const uint8_t* map = args.map.as<uint8_t>();
  auto *offsets = args.offsets.as<int32_t>(), *tokens = args.tokens.as<int32_t>(), *slots = args.slots.as<int32_t>();
  std::fill_n(tokens, capacity, -1);
  std::fill_n(slots, t * s, -1);
  int32_t row = 0;
  for (int64_t expert = 0; expert < e; ++expert) {
    offsets[expert] = row;
    for (int64_t token = 0; token < t; ++token) {
      if (map[token * e + expert] == 0) continue;
      int32_t* slot = slots + token * s;
      const int32_t* end = slot + s;
      while (slot < end && *slot >= 0) ++slot;
      if (row < capacity) {
        tokens[row] = static_cast<int32_t>(token);
        if (slot < end) *slot = row;
      }
      ++row;
    }
  }
  offsets[e] = row;
  if (args.count.defined()) *args.count.as<int32_t>() = row;
}

void permute_probs_forward(const CpuStream& stream, const PermuteProbsForwardArgs& args) {
  const int64_t e = args.probs.shape[1];
  const auto* tokens = args.tokens.as<int32_t>();
  dispatch_compute(args.probs.dtype, [&]<class C>() {
    const C* probs = args.probs.as<C>();
    C* row_probs = args.row_probs.as<C>();
    parallel_for(stream, args.tokens.shape[0], 8, [&](int64_t row, int64_t end) {
      for (; row < end; ++row)
        row_probs[row] = tokens[row] < 0 ? C(0) : probs[tokens[row] * e + args.groups.group_of(row)];
    });
  });
}

void permute_probs_backward(const CpuStream& stream, const PermuteProbsBackwardArgs& args) {
  const int64_t e = args.dprobs.shape[1];
  const auto* tokens = args.tokens.as<int32_t>();
  dispatch_compute(args.dprobs.dtype, [&]<class C>() {
    const C* drow_probs = args.drow_probs.as<C>();
    C* dprobs = args.dprobs.as<C>();
    std::fill_n(dprobs, args.dprobs.num_elements(), C(0));
    parallel_for(stream, args.tokens.shape[0], 8, [&](int64_t row, int64_t end) {
      for (; row < end; ++row)
        if (tokens[row] >= 0) dprobs[tokens[row] * e + args.groups.group_of(row)] = drow_probs[row];
    });
  });
}

}  // namespace megatron::kernels
