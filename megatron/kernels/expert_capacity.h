// Routing maps changed after the choice: a bound on the tokens of an expert, and padding of their number.
// t tokens, e experts; maps are uint8 [t, e].
#pragma once

#include "megatron/core/cuda_stream.h"
#include "megatron/core/view.h"

namespace megatron::kernels {

/// Which tokens an expert keeps: those of the largest probability, or those that come first.
enum class TokenDropPolicy { kProbs, kPosition };

/// Each expert keeps `capacity` tokens at most: out_map = map where kept, out_probs = probs where kept, else 0. With
/// `pad` an expert has exactly min(capacity, t) tokens, where those that were not routed to it have probability 0: they
/// are the first ones in token order. Tokens of equal rank are kept in token order.
struct DropTokensArgs {
  ConstView probs, map;     // [t, e]; float32 or float64, not negative
  View out_probs, out_map;  // [t, e]
  View workspace;           // uint8 [drop_tokens_workspace_bytes(t, e)]
  int64_t capacity = 0;
  TokenDropPolicy policy = TokenDropPolicy::kProbs;
  bool pad = false;
};
void drop_tokens(const CpuStream& stream, const DropTokensArgs& args);
void drop_tokens(const CudaStream& stream, const DropTokensArgs& args);
constexpr int64_t drop_tokens_workspace_bytes(int64_t t, int64_t e) { return 4 * t * e; }

/// out_probs = probs where the map is set, else 0.
struct MaskProbsArgs {
  ConstView probs, map;  // [t, e]
  View out_probs;        // may be probs
};
void mask_probs(const CpuStream& stream, const MaskProbsArgs& args);
void mask_probs(const CudaStream& stream, const MaskProbsArgs& args);

/// ceil(tokens * topk / experts * factor), Megatron's capacity.
int64_t expert_capacity(int64_t num_tokens, int64_t topk, int64_t num_experts, double factor);

/// Sets zeros of the map, the first in token order, until the number of tokens of each expert is a multiple of
/// `multiple`, as far as there are tokens.
struct PadRoutingMapArgs {
  ConstView map;
  View out_map;  // may be map
  int64_t multiple = 16;
};
void pad_routing_map(const CpuStream& stream, const PadRoutingMapArgs& args);
void pad_routing_map(const CudaStream& stream, const PadRoutingMapArgs& args);

}  // namespace megatron::kernels
