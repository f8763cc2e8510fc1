#include "megatron/kernels/token_sections.h"

#include "megatron/kernels/cuda/block_rank.cuh"

namespace megatron::kernels {
namespace {

constexpr int kSectionThreads = 1024;

struct TokenSections {
  const uint8_t* map;
  int32_t *tokens, *slots;
  uint8_t* section_map;
  StepState* state;
  int64_t num_tokens, e, num_ranks, size;  // size: rows of a section
};

/// A block for each section. Its threads look at neighbouring tokens, whose rows follow from how many of the tokens
/// before them go to the rank.
__global__ void __launch_bounds__(kSectionThreads) token_sections_kernel(TokenSections args) {
  const int64_t rank = blockIdx.x, columns = args.e / args.num_ranks, begin = rank * args.size;
  int64_t count = 0;
  for (int64_t first = 0; first < args.num_tokens; first += kSectionThreads) {
    const int64_t token = first + threadIdx.x;
    const bool exists = token < args.num_tokens;
    const uint8_t* own = args.map + token * args.e + rank * columns;
    bool is_routed = false;
    for (int64_t i = 0; exists && i < columns; ++i) is_routed |= own[i] != 0;
    const BlockRank place = rank_in_block<kSectionThreads>(is_routed);
    const int64_t row = count + place.before;
    const bool has_row = is_routed && row < args.size;
    count += place.total;
    if (exists) args.slots[token * args.num_ranks + rank] = has_row ? static_cast<int32_t>(begin + row) : -1;
    if (!has_row) continue;
    args.tokens[begin + row] = static_cast<int32_t>(token);
    for (int64_t i = 0; i < columns; ++i) args.section_map[(begin + row) * columns + i] = own[i];
  }
  if (threadIdx.x == 0 && count > args.size) args.state->overflow = 1;
  for (int64_t row = count + threadIdx.x; row < args.size; row += kSectionThreads) {
    args.tokens[begin + row] = -1;
    for (int64_t i = 0; i < columns; ++i) args.section_map[(begin + row) * columns + i] = 0;
  }
}

}  // namespace

void token_sections(const CudaStream& stream, const TokenSectionsArgs& args) {
  const int64_t t = args.map.shape[0], e = args.map.shape[1], n = args.slots.shape[1];
  if (n == 0) return;
  token_sections_kernel<<<static_cast<unsigned>(n), kSectionThreads, 0, stream.stream>>>(
      {args.map.as<uint8_t>(), args.tokens.as<int32_t>(), args.slots.as<int32_t>(), args.section_map.as<uint8_t>(),
       args.state, t, e, n, args.tokens.shape[0] / n});
  check_launch("token_sections");
}

}  // namespace megatron::kernels
