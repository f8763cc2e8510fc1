// Which of cuBLASLt's algorithms multiplies which shapes on one kind of GPU: measured once, kept in a file.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/core/dtype.h"
#include "megatron/kernels/matmul.h"

namespace megatron::kernels {

/// All that a choice depends on. Row strides in elements; alignments in bytes, powers of two up to 256. Keys of one
/// product with operands aligned otherwise follow each other.
struct MatmulKey {
  int64_t m = 0, n = 0, k = 0, a_stride = 0, b_stride = 0, c_stride = 0;
  DType dtype = DType::kBFloat16, c_dtype = DType::kBFloat16;
  bool transpose_a = false, transpose_b = false, has_bias = false, accumulate = false;
  uint32_t a_alignment = 256, b_alignment = 256, c_alignment = 256, bias_alignment = 256;
  auto operator<=>(const MatmulKey&) const = default;
};

/// Whether nothing but alignments differs.
bool is_same_product(MatmulKey one, const MatmulKey& other);
bool is_aligned_no_better(const MatmulKey& one, const MatmulKey& other);

/// One key for each product, with the worst alignments that it comes with. @param keys  sorted
std::vector<MatmulKey> with_least_alignments(const std::vector<MatmulKey>& keys);

/// Of a product. From shapes, strides, dtypes and addresses.
MatmulKey matmul_key(const MatmulArgs& args);

/// An algorithm as cuBLASLt writes it down (cublasLtMatmulAlgo_t), and the time of one product in a long row of them.
struct MatmulChoice {
  std::array<uint64_t, 8> algorithm{};
  double microseconds = 0, first_microseconds = 0;  // of this one, and of the library's own first choice
  bool operator==(const MatmulChoice&) const = default;
};

/// They hold for one kind of GPU and one version of the library.
struct MatmulChoices {
  std::string gpu;
  int64_t library_version = 0;
  std::map<MatmulKey, MatmulChoice> choices;
  bool operator==(const MatmulChoices&) const = default;
};

/// Where choices for a GPU are kept: "nvidia_h200.json".
std::string matmul_choices_file_name(std::string_view gpu);

/// Products that have run, and how many of them by an algorithm that was chosen for them.
struct MatmulUse {
  std::vector<MatmulKey> products;
  int64_t num_chosen = 0;
};

std::string to_json(const MatmulChoices& choices);
/// @throw DataError that begins with `file` and says what is wrong in it, also that its format is of another version.
MatmulChoices matmul_choices_from_json(std::string_view json, std::string_view file);

/// @throw ConfigError that says how to measure again, if the choices were made for something else.
void require_made_for(const MatmulChoices& choices, std::string_view gpu, int64_t library_version,
                      std::string_view file);

}  // namespace megatron::kernels
