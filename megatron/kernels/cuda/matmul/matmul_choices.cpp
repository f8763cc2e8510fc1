#include "megatron/kernels/cuda/matmul/matmul_choices.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"

namespace megatron::kernels {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;  // grows when a choice depends on more properties

constexpr DType kDtypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16};

DType dtype_called(const std::string& name) {
  for (DType dtype : kDtypes)
    if (name_of(dtype) == name) return dtype;
  throw DataError(fmt::format("dtype '{}' must be float32, bfloat16 or float16", name));
}

/// Text, because JSON numbers of 64 bits lose digits in many readers.
std::string hexadecimal(const std::array<uint64_t, 8>& words) {
  std::string text;
  for (uint64_t word : words) text += fmt::format("{:016x}", word);
  return text;
}
std::array<uint64_t, 8> words_of(const std::string& text) {
  constexpr size_t kDigits = 16;
  std::array<uint64_t, 8> words{};
  if (text.size() != words.size() * kDigits || text.find_first_not_of("0123456789abcdef") != std::string::npos)
    throw DataError("an algorithm must have 128 hexadecimal digits");
  for (size_t i = 0; i < words.size(); ++i) words[i] = std::stoull(text.substr(i * kDigits, kDigits), nullptr, 16);
  return words;
}

Json object_of(const MatmulKey& key, const MatmulChoice& choice) {
  return {{"m", key.m},
          {"n", key.n},
          {"k", key.k},
          {"row_strides", {key.a_stride, key.b_stride, key.c_stride}},
          {"dtype", name_of(key.dtype)},
          {"c_dtype", name_of(key.c_dtype)},
          {"transpose_a", key.transpose_a},
          {"transpose_b", key.transpose_b},
          {"has_bias", key.has_bias},
          {"accumulate", key.accumulate},
          {"alignments", {key.a_alignment, key.b_alignment, key.c_alignment, key.bias_alignment}},
          {"algorithm", hexadecimal(choice.algorithm)},
          {"microseconds", choice.microseconds},
          {"first_microseconds", choice.first_microseconds}};
}

MatmulKey key_of(const Json& object) {
  MatmulKey key{.m = object.at("m"), .n = object.at("n"), .k = object.at("k")};
  const Json& strides = object.at("row_strides");
  key.a_stride = strides.at(0), key.b_stride = strides.at(1), key.c_stride = strides.at(2);
  key.dtype = dtype_called(object.at("dtype")), key.c_dtype = dtype_called(object.at("c_dtype"));
  key.transpose_a = object.at("transpose_a"), key.transpose_b = object.at("transpose_b");
  key.has_bias = object.at("has_bias"), key.accumulate = object.at("accumulate");
  const Json& alignments = object.at("alignments");
  key.a_alignment = alignments.at(0), key.b_alignment = alignments.at(1);
  key.c_alignment = alignments.at(2), key.bias_alignment = alignments.at(3);
  for (uint32_t alignment : {key.a_alignment, key.b_alignment, key.c_alignment, key.bias_alignment})
    if (!std::has_single_bit(alignment) || alignment > 256)
      throw DataError(fmt::format("alignment {} must be a power of two up to 256", alignment));
  if (key.m < 1 || key.n < 1 || key.k < 1)
    throw DataError(fmt::format("m {}, n {} and k {} must be at least 1", key.m, key.n, key.k));
  return key;
}

/// Bytes that divide the address, at most 256.
uint32_t alignment_of(const void* data) {
  return data ? uint32_t{1} << std::min(std::countr_zero(reinterpret_cast<uintptr_t>(data)), 8) : 256;
}

}  // namespace

MatmulKey matmul_key(const MatmulArgs& args) {
  // A matrix of one row has any stride.
  const auto stride_of = [](const ConstView& x) { return std::max(x.strides[0], x.shape[1]); };
  return {.m = args.c.shape[0],
          .n = args.c.shape[1],
          .k = args.a.shape[args.transpose_a ? 0 : 1],
          .a_stride = stride_of(args.a),
          .b_stride = stride_of(args.b),
          .c_stride = stride_of(args.c),
          .dtype = args.a.dtype,
          .c_dtype = args.c.dtype,
          .transpose_a = args.transpose_a,
          .transpose_b = args.transpose_b,
          .has_bias = args.bias.defined(),
          .accumulate = args.accumulate,
          .a_alignment = alignment_of(args.a.data),
          .b_alignment = alignment_of(args.b.data),
          .c_alignment = alignment_of(args.c.data),
          .bias_alignment = alignment_of(args.bias.data)};
}

bool is_same_product(MatmulKey one, const MatmulKey& other) {
  one.a_alignment = other.a_alignment, one.b_alignment = other.b_alignment;
  one.c_alignment = other.c_alignment, one.bias_alignment = other.bias_alignment;
  return one == other;
}

bool is_aligned_no_better(const MatmulKey& one, const MatmulKey& other) {
  return one.a_alignment <= other.a_alignment && one.b_alignment <= other.b_alignment &&
         one.c_alignment <= other.c_alignment && one.bias_alignment <= other.bias_alignment;
}

std::vector<MatmulKey> with_least_alignments(const std::vector<MatmulKey>& keys) {
  std::vector<MatmulKey> least;
  for (const MatmulKey& key : keys) {
    if (least.empty() || !is_same_product(least.back(), key)) {
      least.push_back(key);
      continue;
    }
    MatmulKey& worst = least.back();
    worst.a_alignment = std::min(worst.a_alignment, key.a_alignment);
    worst.b_alignment = std::min(worst.b_alignment, key.b_alignment);
    worst.c_alignment = std::min(worst.c_alignment, key.c_alignment);
    worst.bias_alignment = std::min(worst.bias_alignment, key.bias_alignment);
  }
  return least;
}

std::string matmul_choices_file_name(std::string_view gpu) {
  std::string name;
  for (const char c : gpu) {
    const auto byte = static_cast<unsigned char>(c);
    name += std::isalnum(byte) ? static_cast<char>(std::tolower(byte)) : '_';
  }
  return name + ".json";
}

std::string to_json(const MatmulChoices& choices) {
  Json list = Json::array();
  for (const auto& [key, choice] : choices.choices) list.push_back(object_of(key, choice));
  const Json root{
      {"format", kFormat}, {"gpu", choices.gpu}, {"cublaslt_version", choices.library_version}, {"choices", list}};
  return root.dump(1) + '\n';
}

MatmulChoices matmul_choices_from_json(std::string_view json, std::string_view file) {
  try {
    const Json root = Json::parse(json);
    if (const int64_t format = root.at("format"); format != kFormat)
      throw DataError(
          fmt::format("format {} is unknown, this program reads {}: measure the choices again with "
                      "'megatron bench gemm --tune'",
                      format, kFormat));
    MatmulChoices choices{.gpu = root.at("gpu"), .library_version = root.at("cublaslt_version")};
    for (const Json& object : root.at("choices")) {
      const MatmulChoice choice{.algorithm = words_of(object.at("algorithm")),
                                .microseconds = object.at("microseconds"),
                                .first_microseconds = object.at("first_microseconds")};
      if (!choices.choices.emplace(key_of(object), choice).second)
        throw DataError("one matmul has two algorithms: " + object.dump());
    }
    return choices;
  } catch (const Json::exception& error) {
    throw DataError(fmt::format("{}: not a file of matmul choices: {}", file, error.what()));
  } catch (const DataError& error) {
    throw DataError(fmt::format("{}: {}.", file, error.what()));
  }
}

void require_made_for(const MatmulChoices& choices, std::string_view gpu, int64_t library_version,
                      std::string_view file) {
  require<ConfigError>(
      choices.gpu == gpu && choices.library_version == library_version,
      "{} has choices for {} with cuBLASLt {}; this is {} with {}. Choices are valid only where they were "
      "measured: measure them here with 'megatron bench "
      "gemm --tune'.",
      file, choices.gpu, choices.library_version, gpu, library_version);
}

}  // namespace megatron::kernels
