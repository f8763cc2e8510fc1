// The measured choice of cuBLASLt's algorithms for shapes on one kind of GPU, kept in a file.
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

/// Everything on which a choice depends. Row strides in elements; alignments in bytes, powers of two up to 256. Keys of
/// one matmul with other alignments are adjacent in the order.
struct MatmulKey {
  int64_t m = 0, n = 0, k = 0, a_stride = 0, b_stride = 0, c_stride = 0;
  DType dtype = DType::kBFloat16, c_dtype = DType::kBFloat16;
  bool transpose_a = false, transpose_b = false, has_bias = false, accumulate = false;
  uint32_t a_alignment = 256, b_alignment = 256, c_alignment = 256, bias_alignment = 256;
  auto operator<=>(const MatmulKey&) const = default;
};

/// Says whether only alignments differ.
bool is_same_product(MatmulKey one, const MatmulKey& other);
bool is_aligned_no_better(const MatmulKey& one, const MatmulKey& other);

/// One key for each matmul, with the worst alignments of its calls. @param keys  sorted
std::vector<MatmulKey> with_least_alignments(const std::vector<MatmulKey>& keys);

/// The key of a matmul, from shapes, strides, dtypes and addresses.
MatmulKey matmul_key(const MatmulArgs& args);

/// An algorithm in cuBLASLt's form (cublasLtMatmulAlgo_t), and the time of one of many consecutive matmuls.
struct MatmulChoice {
  std::array<uint64_t, 8> algorithm{};
  double microseconds = 0, first_microseconds = 0;  // of this one, and of the library's own first choice
  bool operator==(const MatmulChoice&) const = default;
};

/// Choices for one kind of GPU and one version of the library.
struct MatmulChoices {
  std::string gpu;
  int64_t library_version = 0;
  std::map<MatmulKey, MatmulChoice> choices;
  bool operator==(const MatmulChoices&) const = default;
};

/// File name of the choices for a GPU: "nvidia_h200.json".
std::string matmul_choices_file_name(std::string_view gpu);

/// Matmuls that have run, and the number of those with a chosen algorithm.
struct MatmulUse {
  std::vector<MatmulKey> products;
  int64_t num_chosen = 0;
};

std::string to_json(const MatmulChoices& choices);
/// @throw DataError that begins with `file` and describes the error in it, for example another version of the format.
MatmulChoices matmul_choices_from_json(std::string_view json, std::string_view file);

/// @throw ConfigError that says how to measure again, if the choices are for another GPU or library.
void require_made_for(const MatmulChoices& choices, std::string_view gpu, int64_t library_version,
                      std::string_view file);

}  // namespace megatron::kernels
