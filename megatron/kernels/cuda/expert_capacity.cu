#include "megatron/kernels/expert_capacity.h"

#include "megatron/kernels/cuda/block_rank.cuh"
#include "megatron/kernels/cuda/reduce.cuh"

namespace megatron::kernels {
namespace {

constexpr int kExpertThreads = 1024;

struct DropTokens {
  const float* probs;
  const uint8_t* map;
  float* out_probs;
  uint8_t* out_map;
  int64_t num_tokens, e, capacity;
  bool by_probs, pad;

  /// Increases with the rank of a token: the bits of a number that is not negative increase with it.
  __device__ uint32_t key(int64_t place) const { return by_probs ? __float_as_uint(probs[place]) : map[place]; }
};

/// A block for each expert. The key of the last token that is kept is found bit by bit; of the tokens that have it, the
/// first ones are kept.
__global__ void __launch_bounds__(kExpertThreads) drop_tokens_kernel(DropTokens args) {
  const int64_t e = args.e, expert = blockIdx.x;
  uint32_t threshold = 0;
  const auto count_from = [&](uint32_t least) {
    int64_t count = 0;
    for (int64_t t = threadIdx.x; t < args.num_tokens; t += kExpertThreads) count += args.key(t * e + expert) >= least;
    return reduce_row(count, Plus());
  };
  for (uint32_t bit = uint32_t{1} << 31; bit != 0; bit >>= 1)
    if (count_from(threshold | bit) >= args.capacity) threshold |= bit;
  const int64_t above = threshold == 0xFFFFFFFFu ? 0 : count_from(threshold + 1);
  const int64_t num_equal = args.capacity - above;  // as many of the tokens at the threshold are kept
  int64_t equal_before = 0;
  for (int64_t first = 0; first < args.num_tokens; first += kExpertThreads) {
    const int64_t t = first + threadIdx.x, place = t * e + expert;
    const bool exists = t < args.num_tokens;
    const uint32_t key = exists ? args.key(place) : 0;
    const bool is_equal = exists && key == threshold;
    const BlockRank rank = rank_in_block<kExpertThreads>(is_equal);
    const bool is_within = key > threshold || (is_equal && equal_before + rank.before < num_equal);
    equal_before += rank.total;
    if (!exists) continue;
    const bool is_kept = is_within && (args.pad || args.map[place] != 0);
    args.out_probs[place] = is_kept ? args.probs[place] : 0;
    args.out_map[place] = is_kept;
  }
}

__global__ void __launch_bounds__(kExpertThreads)
    pad_routing_map_kernel(const uint8_t* map, uint8_t* out, int64_t num_tokens, int64_t e, int64_t multiple) {
  const int64_t expert = blockIdx.x;
  int64_t count = 0;
  for (int64_t t = threadIdx.x; t < num_tokens; t += kExpertThreads) count += map[t * e + expert];
  count = reduce_row(count, Plus());
  const int64_t missing = (multiple - count % multiple) % multiple;
  int64_t free_before = 0;
  for (int64_t first = 0; first < num_tokens; first += kExpertThreads) {
    const int64_t t = first + threadIdx.x, place = t * e + expert;
    const bool is_free = t < num_tokens && map[place] == 0;
    const BlockRank rank = rank_in_block<kExpertThreads>(is_free);
    if (t < num_tokens) out[place] = !is_free || free_before + rank.before < missing;
    free_before += rank.total;
  }
}

__global__ void __launch_bounds__(kBlockThreads)
    mask_probs_kernel(const float* probs, const uint8_t* map, int64_t count, float* out) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
  if (i < count) out[i] = map[i] != 0 ? probs[i] : 0;
}

void require_float(const ConstView& probs) {
  require<NotSupported>(probs.dtype == DType::kFloat32, "[expert_capacity] {} probabilities on CUDA: choose float32.",
                        probs.dtype);
}

}  // namespace

void drop_tokens(const CudaStream& stream, const DropTokensArgs& args) {
  require_float(args.probs);
  const int64_t t = args.map.shape[0], e = args.map.shape[1];
  if (t == 0 || e == 0) return;
  drop_tokens_kernel<<<static_cast<unsigned>(e), kExpertThreads, 0, stream.stream>>>(
      {args.probs.as<float>(), args.map.as<uint8_t>(), args.out_probs.as<float>(), args.out_map.as<uint8_t>(), t, e,
       std::min(args.capacity, t), args.policy == TokenDropPolicy::kProbs, args.pad});
  check_launch("drop_tokens");
}

void mask_probs(const CudaStream& stream, const MaskProbsArgs& args) {
  require_float(args.probs);
  const int64_t count = args.map.num_elements();
  if (count == 0) return;
  mask_probs_kernel<<<static_cast<unsigned>((count + kBlockThreads - 1) / kBlockThreads), kBlockThreads, 0,
                      stream.stream>>>(args.probs.as<float>(), args.map.as<uint8_t>(), count,
                                       args.out_probs.as<float>());
  check_launch("mask_probs");
}

void pad_routing_map(const CudaStream& stream, const PadRoutingMapArgs& args) {
  const int64_t t = args.map.shape[0], e = args.map.shape[1];
  if (t == 0 || e == 0) return;
  pad_routing_map_kernel<<<static_cast<unsigned>(e), kExpertThreads, 0, stream.stream>>>(
      args.map.as<uint8_t>(), args.out_map.as<uint8_t>(), t, e, args.multiple);
  check_launch("pad_routing_map");
}

}  // namespace megatron::kernels
