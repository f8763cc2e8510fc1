#include "megatron/training/hugging_face/dequantized_folder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>

#include "megatron/base/error.h"

namespace megatron {
namespace {

using hugging_face::QuantizationMethod;

constexpr std::string_view kScaleInv = "_scale_inv", kBlocks = "_blocks", kScales = "_scales";
constexpr int64_t kMxfp4Block = 32;  // numbers that share a scale
constexpr int64_t kMxfp4Bytes = kMxfp4Block / 2;
constexpr std::array<float, 8> kE2m1 = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};

/// e4m3 without infinities: one sign bit, four of exponent with bias 7, three of mantissa; all ones is NaN.
float number_of_e4m3(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  const auto fraction = static_cast<float>(exponent == 0 ? mantissa : mantissa + 8);
  const float magnitude = std::ldexp(fraction, std::max(exponent, 1) - 7 - 3);
  return bits & 128 ? -magnitude : magnitude;
}

std::array<float, 256> table_of_e4m3() {
  std::array<float, 256> table{};
  for (size_t bits = 0; bits < table.size(); ++bits) table[bits] = number_of_e4m3(static_cast<uint8_t>(bits));
  return table;
}

float number_of_e2m1(uint8_t bits) { return bits & 8 ? -kE2m1[bits & 7] : kE2m1[bits & 7]; }

int64_t blocks_of(int64_t size, int64_t block) { return (size + block - 1) / block; }

/// The blocks that `count` elements from `begin` on lie in.
struct BlockRange {
  int64_t first, count;
};
BlockRange blocks_around(int64_t begin, int64_t count, int64_t block) {
  const int64_t first = begin / block;
  return {first, blocks_of(begin + count, block) - first};
}

}  // namespace

DequantizedFolder::DequantizedFolder(const FileSystem& files, const std::string& directory,
                                     const std::optional<hugging_face::Quantization>& quantization)
    : stored_(files, directory), quantization_(quantization) {
  if (!quantization_) return;
  if (quantization_->method == QuantizationMethod::kFp8Blocks)
    find_fp8();
  else
    find_mxfp4();
}

void DequantizedFolder::find_fp8() {
  for (const std::string& scales : stored_.names()) {
    if (!scales.ends_with(kScaleInv)) continue;
    const std::string name = scales.substr(0, scales.size() - kScaleInv.size());
    if (!stored_.contains(name) || stored_.tensor(name).type != ElementType::kFloat8E4M3) continue;
    const Shape &shape = stored_.tensor(name).shape, &scale_shape = stored_.tensor(scales).shape;
    const ElementType scale_type = stored_.tensor(scales).type;
    const bool is_matrix = shape.rank() == 2;
    const Shape expected = is_matrix ? Shape{blocks_of(shape[0], quantization_->block_rows),
                                             blocks_of(shape[1], quantization_->block_columns)}
                                     : Shape{};
    require<CheckpointError>(
        is_matrix && scale_shape == expected && info(scale_type).dtype && is_floating(*info(scale_type).dtype),
        "[hugging_face] {}: {} is {} {}, which does not fit {} {} in blocks of {} x {}: it needs a floating type and "
        "shape {}. Fetch the folder's files again, all of one version.",
        directory(), scales, scale_type, scale_shape, name, shape, quantization_->block_rows,
        quantization_->block_columns, expected);
    sources_[name] = {name, scales, shape};
  }
}

void DequantizedFolder::find_mxfp4() {
  for (const std::string& values : stored_.names()) {
    if (!values.ends_with(kBlocks)) continue;
    const std::string name = values.substr(0, values.size() - kBlocks.size());
    const std::string scales = name + std::string(kScales);
    if (!stored_.contains(scales)) continue;
    const Shape &shape = stored_.tensor(values).shape, &scale_shape = stored_.tensor(scales).shape;
    const bool are_bytes =
        stored_.tensor(values).type == ElementType::kUInt8 && stored_.tensor(scales).type == ElementType::kUInt8;
    require<CheckpointError>(
        are_bytes && shape.rank() == 4 && shape[3] == kMxfp4Bytes && scale_shape == Shape{shape[0], shape[1], shape[2]},
        "[hugging_face] {}: {} is {} {} and {} is {} {}; mxfp4 needs uint8 [experts, out, in / {}, {}] and [experts, "
        "out, in / {}]. Fetch the folder's files again, all of one version.",
        directory(), values, stored_.tensor(values).type, shape, scales, stored_.tensor(scales).type, scale_shape,
        kMxfp4Block, kMxfp4Bytes, kMxfp4Block);
    sources_[name] = {values, scales, Shape{shape[0], shape[2] * kMxfp4Block, shape[1]}};
  }
}

std::vector<std::string> DequantizedFolder::names() const {
  std::set<std::string> parts;
  std::vector<std::string> names;
  for (const auto& [name, source] : sources_) {
    parts.insert({source.values, source.scales});
    names.push_back(name);
  }
  for (const std::string& name : stored_.names())
    if (!parts.contains(name)) names.push_back(name);
  std::ranges::sort(names);
  return names;
}

bool DequantizedFolder::contains(std::string_view name) const {
  return sources_.contains(name) || stored_.contains(name);
}

DequantizedFolder::Tensor DequantizedFolder::tensor(std::string_view name) const {
  if (const auto found = sources_.find(name); found != sources_.end())
    return {ElementType::kBFloat16, found->second.shape};
  const SafetensorsFile::Tensor& stored = stored_.tensor(name);
  return {stored.type, stored.shape};
}

void DequantizedFolder::read_box(std::string_view name, const Box& box, std::byte* destination,
                                 const Shape& destination_strides) const {
  const auto found = sources_.find(name);
  if (found == sources_.end()) return stored_.read_box(name, box, destination, destination_strides);
  auto* values = reinterpret_cast<BFloat16*>(destination);
  if (quantization_->method == QuantizationMethod::kFp8Blocks)
    read_fp8(found->second, box, values, destination_strides);
  else
    read_mxfp4(found->second, box, values, destination_strides);
}

std::vector<uint8_t> DequantizedFolder::read_bytes(const std::string& name, const Box& box) const {
  std::vector<uint8_t> bytes(static_cast<size_t>(box.sizes.num_elements()));
  stored_.read_box(name, box, reinterpret_cast<std::byte*>(bytes.data()), box.sizes.contiguous_strides());
  return bytes;
}

std::vector<float> DequantizedFolder::read_floats(const std::string& name, const Box& box) const {
  const ElementType type = stored_.tensor(name).type;
  const auto count = static_cast<size_t>(box.sizes.num_elements());
  std::vector<std::byte> bytes(count * static_cast<size_t>(size_of(type)));
  stored_.read_box(name, box, bytes.data(), box.sizes.contiguous_strides());
  std::vector<float> values(count);
  dispatch_floating(info(type).dtype.value(), [&]<class T>() {
    std::vector<T> given(count);
    std::memcpy(given.data(), bytes.data(), bytes.size());
    for (size_t i = 0; i < count; ++i) values[i] = static_cast<float>(given[i]);
  });
  return values;
}

void DequantizedFolder::read_fp8(const Source& source, const Box& box, BFloat16* destination,
                                 const Shape& strides) const {
  static const std::array<float, 256> kNumbers = table_of_e4m3();
  const int64_t block_rows = quantization_->block_rows, block_columns = quantization_->block_columns;
  const BlockRange rows = blocks_around(box.offsets[0], box.sizes[0], block_rows);
  const BlockRange columns = blocks_around(box.offsets[1], box.sizes[1], block_columns);
  const std::vector<uint8_t> bits = read_bytes(source.values, box);
  const std::vector<float> scales =
      read_floats(source.scales, {{rows.first, columns.first}, {rows.count, columns.count}});
  const uint8_t* next = bits.data();
  for (int64_t row = 0; row < box.sizes[0]; ++row) {
    const int64_t block_row = (box.offsets[0] + row) / block_rows - rows.first;
    const float* factors = scales.data() + block_row * columns.count;
    for (int64_t column = 0; column < box.sizes[1]; ++column, ++next) {
      const int64_t block_column = (box.offsets[1] + column) / block_columns - columns.first;
      destination[row * strides[0] + column * strides[1]] = BFloat16(kNumbers[*next] * factors[block_column]);
    }
  }
}

void DequantizedFolder::read_mxfp4(const Source& source, const Box& box, BFloat16* destination,
                                   const Shape& strides) const {
  // The box is [experts, in, out]; stored are [experts, out, blocks of in, bytes].
  const BlockRange groups = blocks_around(box.offsets[1], box.sizes[1], kMxfp4Block);
  const Box scale_box{{box.offsets[0], box.offsets[2], groups.first}, {box.sizes[0], box.sizes[2], groups.count}};
  const Box value_box{{box.offsets[0], box.offsets[2], groups.first, 0},
                      {box.sizes[0], box.sizes[2], groups.count, kMxfp4Bytes}};
  const std::vector<uint8_t> scales = read_bytes(source.scales, scale_box);
  const std::vector<uint8_t> pairs = read_bytes(source.values, value_box);
  const int64_t begin = box.offsets[1] - groups.first * kMxfp4Block;  // of the first group
  for (int64_t row = 0; row < box.sizes[0] * box.sizes[2]; ++row) {
    BFloat16* to = destination + row / box.sizes[2] * strides[0] + row % box.sizes[2] * strides[2];
    for (int64_t i = 0; i < box.sizes[1]; ++i) {
      const int64_t place = row * groups.count * kMxfp4Block + begin + i;
      const uint8_t pair = pairs[static_cast<size_t>(place / 2)];
      const float value = number_of_e2m1(place % 2 == 0 ? pair & 15 : pair >> 4);
      to[i * strides[1]] = BFloat16(std::ldexp(value, scales[static_cast<size_t>(place / kMxfp4Block)] - 127));
    }
  }
}

}  // namespace megatron
