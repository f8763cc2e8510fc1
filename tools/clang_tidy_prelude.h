// What g++ 12 knows and clang-tidy 14 does not, or does not accept together, in words that it does: scripts/lint.sh
// puts this before each file that clang-tidy reads. No compiler sees it.
#pragma once

#include <cstdint>

#define __builtin_cpu_supports(feature) __builtin_cpu_supports("avx2")  // for "x86-64-v3"
#define target_clones(...) unused                                       // not beside flatten
#define __builtin_shuffle(x, ...) (x)                                   // has the type of x

namespace std {
/// libstdc++ leaves it out without __builtin_source_location.
struct source_location {
  static constexpr source_location current() { return {}; }
  constexpr uint_least32_t line() const { return 0; }
  constexpr uint_least32_t column() const { return 0; }
  constexpr const char* file_name() const { return ""; }
  constexpr const char* function_name() const { return ""; }
};
}  // namespace std

// omp.h of g++ names the function that frees what another allocates, an argument of the attribute that clang 14 lacks.
#define __malloc__(...) __malloc__
