// Vector loops for CPU kernels: the only place that chooses the instruction set (README.md beside this file).
// They are static because g++ 13 fails on clones that several object files could share (internal compiler error).
// A body comes by reference and is copied inside: g++ would build it on the stack by words and hand it over by vector
// loads of what it has just stored, which wait until every store before them, cache misses included, has left.
#pragma once

#include <cstdint>
#include <limits>
#include <utility>

namespace megatron::kernels {

/// body(i) for i in [0, n). The iterations must not depend on each other.
template <class Body>
[[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), gnu::flatten]] static void simd_for(
    int64_t n, const Body& body) {
  const Body local = body;
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) local(i);
}

/// Calls body() once: for several short loops over one row, each marked `#pragma omp simd`, where calls would be slow.
template <class Body>
[[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), gnu::flatten]] static void simd_block(
    const Body& body) {
  const Body local = body;
  local();
}

/// Sum of body(i) over [0, n) in C; the order of the additions depends on the vector length of the machine.
template <class C, class Body>
[[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), gnu::flatten]] static C simd_sum(
    int64_t n, const Body& body) {
  const Body local = body;
  C sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < n; ++i) sum += local(i);
  return sum;
}

/// Two sums in one pass: body(i) gives a pair of terms.
template <class C, class Body>
[[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), gnu::flatten]] static std::pair<C, C>
simd_two_sums(int64_t n, const Body& body) {
  const Body local = body;
  C first = 0, second = 0;
#pragma omp simd reduction(+ : first, second)
  for (int64_t i = 0; i < n; ++i) {
    const std::pair<C, C> terms = local(i);
    first += terms.first;
    second += terms.second;
  }
  return {first, second};
}

/// Largest body(i) over [0, n), NaN left out; if there is none, -infinity, or 0 for integers.
template <class C, class Body>
[[gnu::target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"), gnu::flatten]] static C simd_max(
    int64_t n, const Body& body) {
  const Body local = body;
  C largest = -std::numeric_limits<C>::infinity();
#pragma omp simd reduction(max : largest)
  for (int64_t i = 0; i < n; ++i) {
    const C value = local(i);
    largest = value > largest ? value : largest;
  }
  return largest;
}

}  // namespace megatron::kernels
