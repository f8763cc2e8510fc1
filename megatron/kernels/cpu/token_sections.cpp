#include "megatron/kernels/token_sections.h"

#include <algorithm>
#include <atomic>

#include "megatron/kernels/cpu/parallel.h"

namespace megatron::kernels {

void token_sections(const CpuStream& stream, const TokenSectionsArgs& args) {
  const int64_t t = args.map.shape[0], e = args.map.shape[1], n = args.slots.shape[1];
  const int64_t s = args.tokens.shape[0] / n, columns = e / n;
  const uint8_t* map = args.map.as<uint8_t>();
  auto *tokens = args.tokens.as<int32_t>(), *slots = args.slots.as<int32_t>();
  auto* section_map = args.section_map.as<uint8_t>();
  std::fill_n(tokens, n * s, -1);
  std::fill_n(slots, t * n, -1);
  std::fill_n(section_map, n * s * columns, uint8_t{0});
  parallel_for(stream, n, t * columns, [&](int64_t rank, int64_t end) {
    for (; rank < end; ++rank) {
      int64_t row = rank * s;
      for (int64_t token = 0; token < t; ++token) {
        const uint8_t* own = map + token * e + rank * columns;
        if (std::all_of(own, own + columns, [](uint8_t is_routed) { return is_routed == 0; })) continue;
        if (row == (rank + 1) * s) {
          std::atomic_ref(args.state->overflow).store(1, std::memory_order_relaxed);
          break;
        }
        tokens[row] = static_cast<int32_t>(token);
        slots[token * n + rank] = static_cast<int32_t>(row);
        std::copy_n(own, columns, section_map + row * columns);
        ++row;
      }
    }
  });
}

}  // namespace megatron::kernels
