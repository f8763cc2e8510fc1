#include "megatron/kernels/permutation.h"

#include "megatron/kernels/cuda/block_rank.cuh"
#include "megatron/kernels/elementwise.h"

namespace megatron::kernels {
namespace {

constexpr int kExpertThreads = 1024;

/// offsets[expert + 1] = number of its tokens.
__global__ void __launch_bounds__(kExpertThreads)
    count_rows_kernel(const uint8_t* map, int64_t num_tokens, int64_t e, int32_t* offsets) {
  const int64_t expert = blockIdx.x;
  int count = 0;
  for (int64_t t = threadIdx.x; t < num_tokens; t += kExpertThreads) count += map[t * e + expert];
  count = reduce_row(count, Plus());
  if (threadIdx.x == 0) offsets[expert + 1] = count;
}

/// Numbers become offsets. A few hundred additions by one thread.
__global__ void add_up_kernel(int64_t e, int32_t* offsets, int32_t* count) {
  offsets[0] = 0;
  for (int64_t i = 0; i < e; ++i) offsets[i + 1] += offsets[i];
  if (count) *count = offsets[e];
}

/// A block for each expert numbers its tokens in order.
__global__ void __launch_bounds__(kExpertThreads)
    number_rows_kernel(const uint8_t* map, int64_t num_tokens, int64_t e, const int32_t* offsets, int64_t capacity,
                       int64_t num_slots, int32_t* tokens, int32_t* slots) {
  const int64_t expert = blockIdx.x;
  int64_t next = offsets[expert];
  for (int64_t first = 0; first < num_tokens; first += kExpertThreads) {
    const int64_t t = first + threadIdx.x;
    const bool is_routed = t < num_tokens && map[t * e + expert] != 0;
    const BlockRank rank = rank_in_block<kExpertThreads>(is_routed);
    const int64_t row = next + rank.before;
    next += rank.total;
    if (!is_routed || row >= capacity) continue;
    tokens[row] = static_cast<int32_t>(t);
    int64_t slot = 0;
    for (int64_t other = 0; other < expert; ++other) slot += map[t * e + other];
    if (slot < num_slots) slots[t * num_slots + slot] = static_cast<int32_t>(row);
  }
}

__global__ void __launch_bounds__(kBlockThreads)
    permute_probs_kernel(const float* probs, const int32_t* tokens, RowGroupsView groups, float* row_probs) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
  if (row >= groups.capacity) return;
  row_probs[row] = tokens[row] < 0 ? 0 : probs[tokens[row] * groups.num_groups + groups.group_of(row)];
}

__global__ void __launch_bounds__(kBlockThreads)
    unpermute_probs_kernel(const float* drow_probs, const int32_t* tokens, RowGroupsView groups, float* dprobs) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kBlockThreads + threadIdx.x;
  if (row < groups.capacity && tokens[row] >= 0)
    dprobs[tokens[row] * groups.num_groups + groups.group_of(row)] = drow_probs[row];
}

unsigned row_blocks(const RowGroupsView& groups) {
  return static_cast<unsigned>((groups.capacity + kBlockThreads - 1) / kBlockThreads);
}

void require_float(const ConstView& probs) {
  require<NotSupported>(probs.dtype == DType::kFloat32, "[permute_probs] {} probabilities on CUDA: choose float32.",
                        probs.dtype);
}

}  // namespace

void sort_by_expert(const CudaStream& stream, const SortByExpertArgs& args) {
  const int64_t t = args.map.shape[0], e = args.map.shape[1];
  fill(stream, {.y = args.tokens, .value = -1});
  fill(stream, {.y = args.slots, .value = -1});
  auto* offsets = args.offsets.as<int32_t>();
  const unsigned blocks = static_cast<unsigned>(e);
  count_rows_kernel<<<blocks, kExpertThreads, 0, stream.stream>>>(args.map.as<uint8_t>(), t, e, offsets);
  check_launch("count_rows");
  add_up_kernel<<<1, 1, 0, stream.stream>>>(e, offsets, args.count.defined() ? args.count.as<int32_t>() : nullptr);
  check_launch("add_up");
  number_rows_kernel<<<blocks, kExpertThreads, 0, stream.stream>>>(args.map.as<uint8_t>(), t, e, offsets,
                                                                   args.tokens.shape[0], args.slots.shape[1],
                                                                   args.tokens.as<int32_t>(), args.slots.as<int32_t>());
  check_launch("number_rows");
}

void permute_probs_forward(const CudaStream& stream, const PermuteProbsForwardArgs& args) {
  require_float(args.probs);
  if (args.groups.capacity == 0) return;
  permute_probs_kernel<<<row_blocks(args.groups), kBlockThreads, 0, stream.stream>>>(
      args.probs.as<float>(), args.tokens.as<int32_t>(), args.groups, args.row_probs.as<float>());
  check_launch("permute_probs_forward");
}

void permute_probs_backward(const CudaStream& stream, const PermuteProbsBackwardArgs& args) {
  require_float(args.drow_probs);
  fill(stream, {.y = args.dprobs});
  if (args.groups.capacity == 0) return;
  unpermute_probs_kernel<<<row_blocks(args.groups), kBlockThreads, 0, stream.stream>>>(
      args.drow_probs.as<float>(), args.tokens.as<int32_t>(), args.groups, args.dprobs.as<float>());
  check_launch("permute_probs_backward");
}

}  // namespace megatron::kernels
