// Vector instruction sets that the tile kernels (tile_*.h, *_tile.h) are compiled for.
#pragma once

#include <cstdint>
#include <utility>

namespace megatron::kernels {

enum class InstructionSet : uint8_t { kPlain, kAvx2, kAvx512 };

/// The widest set that this machine executes.
inline InstructionSet widest_instruction_set() {
  if (__builtin_cpu_supports("x86-64-v4")) return InstructionSet::kAvx512;
  return __builtin_cpu_supports("x86-64-v3") ? InstructionSet::kAvx2 : InstructionSet::kPlain;
}

/// Says whether this machine has bf16 instructions; machines with AMX do too.
inline bool has_bf16_instructions() { return __builtin_cpu_supports("avx512bf16"); }

// Tags, defined in tiles_plain.cpp, tiles_avx2.cpp and tiles_avx512.cpp: the vector length and the few operations that
// need intrinsics.
struct Plain;
struct Avx2;
struct Avx512;

/// Calls `f.template operator()<Tag>()` with the tag of an instruction set.
template <class F>
decltype(auto) dispatch_instruction_set(InstructionSet set, F&& f) {
  switch (set) {
    case InstructionSet::kAvx512:
      return std::forward<F>(f).template operator()<Avx512>();
    case InstructionSet::kAvx2:
      return std::forward<F>(f).template operator()<Avx2>();
    case InstructionSet::kPlain:
      break;
  }
  return std::forward<F>(f).template operator()<Plain>();
}

}  // namespace megatron::kernels
