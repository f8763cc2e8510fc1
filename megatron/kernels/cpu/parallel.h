// Threads of CPU kernels.
#pragma once

#include <omp.h>

#include <algorithm>
#include <cstdint>

#include "megatron/core/stream.h"

namespace megatron::kernels {

/// Waking a team takes 5 to 8 us (0.5 us if its threads still spin); an element takes 0.1 to 0.5 ns (EPYC, AVX-512).
/// Below this share of work a thread does not pay for itself.
inline constexpr int64_t kMinElementsPerThread = 32768;

/// Calls body(begin, end) on disjoint ranges that cover [0, count), one range per thread. An item is worth
/// `elements_per_item` elements of memory traffic; with too little work, or with one thread, no team is
/// started and body(0, count) runs here. `body` must not throw, and its results must not depend on the split: then they
/// do not depend on the number of threads either.
template <class Body>
void parallel_for(const CpuStream& stream, int64_t count, int64_t elements_per_item, Body&& body) {
  const int64_t useful = std::min(count, count * elements_per_item / kMinElementsPerThread);
  if (stream.num_threads <= 1 || useful <= 1) {
    if (count > 0) body(int64_t{0}, count);
    return;
  }
  const int team = static_cast<int>(std::min<int64_t>(stream.num_threads, useful));
#pragma omp parallel num_threads(team)
  {
    const int64_t thread = omp_get_thread_num(), num_threads = omp_get_num_threads();
    const int64_t begin = count * thread / num_threads, end = count * (thread + 1) / num_threads;
    if (begin < end) body(begin, end);
  }
}

}  // namespace megatron::kernels
