#include "megatron/kernels/expert_capacity.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "megatron/kernels/cpu/convert.h"
#include "megatron/kernels/cpu/parallel.h"

namespace megatron::kernels {
namespace {

/// Tokens by rank: `order` is a workspace of t numbers, of which the first `capacity` are those that are kept.
template <class C>
void keep_best(const DropTokensArgs& args, int64_t expert, int32_t* order) {
  const int64_t t = args.map.shape[0], e = args.map.shape[1], capacity = std::min(args.capacity, t);
  const C* probs = args.probs.as<C>() + expert;
  const uint8_t* map = args.map.as<uint8_t>() + expert;
  C* out_probs = args.out_probs.as<C>() + expert;
  uint8_t* out_map = args.out_map.as<uint8_t>() + expert;
  const auto key = [&](int32_t token) {
    return args.policy == TokenDropPolicy::kProbs ? probs[token * e] : static_cast<C>(map[token * e]);
  };
  std::iota(order, order + t, 0);
  std::nth_element(order, order + capacity, order + t,
                   [&](int32_t a, int32_t b) { return key(a) > key(b) || (key(a) == key(b) && a < b); });
  for (int64_t token = 0; token < t; ++token) out_probs[token * e] = 0, out_map[token * e] = 0;
  for (int64_t i = 0; i < capacity; ++i) {
    const int64_t place = order[i] * e;
    const bool is_kept = args.pad || map[place] != 0;
    out_probs[place] = is_kept ? probs[place] : 0;
    out_map[place] = is_kept;
  }
}

}  // namespace

void drop_tokens(const CpuStream& stream, const DropTokensArgs& args) {
  const int64_t t = args.map.shape[0], e = args.map.shape[1];
  auto* orders = reinterpret_cast<int32_t*>(args.workspace.defined() ? args.workspace.as<uint8_t>() : nullptr);
  dispatch_compute(args.probs.dtype, [&]<class C>() {
    parallel_for(stream, e, 16 * t, [&](int64_t expert, int64_t end) {
      for (; expert < end; ++expert) keep_best<C>(args, expert, orders + expert * t);
    });
  });
}

void mask_probs(const CpuStream& stream, const MaskProbsArgs& args) {
  dispatch_compute(args.probs.dtype, [&]<class C>() {
    const C* probs = args.probs.as<C>();
    const uint8_t* map = args.map.as<uint8_t>();
    C* out = args.out_probs.as<C>();
    parallel_for(stream, args.map.num_elements(), 1, [&](int64_t i, int64_t end) {
      for (; i < end; ++i) out[i] = map[i] != 0 ? probs[i] : C(0);
    });
  });
}

int64_t expert_capacity(int64_t num_tokens, int64_t topk, int64_t num_experts, double factor) {
  const double mean = static_cast<double>(num_tokens * topk) / static_cast<double>(num_experts);
  return static_cast<int64_t>(std::ceil(mean * factor));
}

void pad_routing_map(const CpuStream& stream, const PadRoutingMapArgs& args) {
  const int64_t t = args.map.shape[0], e = args.map.shape[1];
  const uint8_t* map = args.map.as<uint8_t>();
  uint8_t* out = args.out_map.as<uint8_t>();
  parallel_for(stream, e, 2 * t, [&](int64_t expert, int64_t end) {
    for (; expert < end; ++expert) {
      int64_t count = 0;
      for (int64_t token = 0; token < t; ++token) count += map[token * e + expert];
      int64_t missing = (args.multiple - count % args.multiple) % args.multiple;
      for (int64_t token = 0; token < t; ++token) {
        const int64_t place = token * e + expert;
        const bool is_routed = map[place] != 0, is_padded = !is_routed && missing > 0;
        if (is_padded) --missing;
        out[place] = is_routed || is_padded;
      }
    }
  });
}

}  // namespace megatron::kernels
