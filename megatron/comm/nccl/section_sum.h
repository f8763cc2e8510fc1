// The sum of sections of several ranks, in rank order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "megatron/comm/operation.h"

struct CUstream_st;

namespace megatron {

inline constexpr int kMostSections = 8;

struct SectionSum {
  std::array<const void*, kMostSections> sections{};  // by rank; the first `num_sections` count
  int num_sections = 0;
  void* sum = nullptr;  // may be one of the sections
  int64_t num_elements = 0;
  DType dtype = DType::kBFloat16;
};

/// Says whether sum_sections() supports the dtype: float, or bfloat16, which it sums in float and rounds once.
constexpr bool sums_sections_of(DType dtype) { return dtype == DType::kBFloat16 || dtype == DType::kFloat32; }

/// Loads the kernels, which would otherwise happen at their first launch and may wait for work in flight.
/// @throw DeviceError
void load_section_sums();

/// Launches on `stream`. @throw DeviceError if the launch fails
void sum_sections(const SectionSum& args, CUstream_st* stream);

}  // namespace megatron
