#include "megatron/datasets/npy_array.h"

#include <fmt/core.h>

#include <array>
#include <charconv>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"
#include "megatron/datasets/atomic_file.h"

namespace megatron {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kHeaderAlignment = 64;
// NumPy leaves room for the first dimension to grow to this many digits.
constexpr size_t kGrowthDigits = 21;

constexpr std::array<std::pair<std::string_view, NpyDtype>, 4> kDescriptions = {
    {{"<i2", NpyDtype::kInt16}, {"<i4", NpyDtype::kInt32}, {"<u4", NpyDtype::kUInt32}, {"<i8", NpyDtype::kInt64}}};

std::string_view description_of(NpyDtype dtype) {
  for (const auto& [text, candidate] : kDescriptions) {
    if (candidate == dtype) return text;
  }
  throw InternalError("unknown element type");
}

/// The product of the dimensions; nullopt for a negative dimension or more than 2^62 elements.
std::optional<int64_t> count_elements(std::span<const int64_t> shape) {
  int64_t count = 1;
  for (int64_t dimension : shape) {
    if (dimension < 0 || __builtin_mul_overflow(count, dimension, &count) || count > int64_t{1} << 60)
      return std::nullopt;
  }
  return count;
}

std::string make_header(NpyDtype dtype, std::span<const int64_t> shape) {
  const std::string dimensions = shape.size() == 1 ? fmt::format("{},", shape[0]) : joined(shape, ", ");
  std::string dictionary =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}), }}", description_of(dtype), dimensions);
  dictionary.append(kGrowthDigits - fmt::formatted_size("{}", shape[0]), ' ');
  const size_t prefix_bytes = kMagic.size() + 4;
  const size_t used = prefix_bytes + dictionary.size() + 1;
  dictionary.append((kHeaderAlignment - used % kHeaderAlignment) % kHeaderAlignment, ' ');
  dictionary.push_back('\n');

  std::string header(kMagic);
  header += {'\x01', '\x00', static_cast<char>(dictionary.size() & 0xff), static_cast<char>(dictionary.size() >> 8)};
  return header + dictionary;
}

/// The text after `'key':` in the header's dictionary, without leading spaces.
std::string_view field(std::string_view dictionary, std::string_view key) {
  for (char quote : {'\'', '"'}) {
    const std::string name = fmt::format("{0}{1}{0}", quote, key);
    const size_t at = dictionary.find(name);
    if (at == std::string_view::npos) continue;
    const size_t colon = dictionary.find(':', at + name.size());
    if (colon == std::string_view::npos) return {};
    const size_t start = dictionary.find_first_not_of(' ', colon + 1);
    return start == std::string_view::npos ? std::string_view{} : dictionary.substr(start);
  }
  return {};
}

std::vector<int64_t> parse_shape(std::string_view text) {
  std::vector<int64_t> shape;
  const size_t end = text.find(')');
  if (!text.starts_with('(') || end == std::string_view::npos) return shape;
  const char* at = text.data() + 1;
  const char* last = text.data() + end;
  while (at < last) {
    if (*at == ' ' || *at == ',') {
      ++at;
      continue;
    }
    int64_t dimension = 0;
    const auto [stop, error] = std::from_chars(at, last, dimension);
    if (error != std::errc{}) return {};
    shape.push_back(dimension);
    at = stop;
  }
  return shape;
}

struct Header {
  NpyDtype dtype{};
  std::vector<int64_t> shape;
  size_t data_offset = 0;
};

Header parse_header(const std::filesystem::path& path, std::string_view file) {
  const std::string name = path.string();
  require<DataError>(file.size() >= 12 && file.starts_with(kMagic), "{}: is not a .npy file ({} bytes)", name,
                     file.size());
  const auto byte = [&](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(file[i])); };
  const size_t version = byte(6);
  require<DataError>(version >= 1 && version <= 3, "{}: .npy version {} is not known", name, version);
  const size_t length_bytes = version == 1 ? 2 : 4;
  size_t length = 0;
  for (size_t i = 0; i < length_bytes; ++i) length |= byte(8 + i) << (8 * i);
  Header header;
  header.data_offset = 8 + length_bytes + length;
  require<DataError>(header.data_offset <= file.size(), "{}: has {} bytes, but its header takes {}: it is truncated",
                     name, file.size(), header.data_offset);

  const std::string_view dictionary = file.substr(8 + length_bytes, length);
  const std::string_view descr = field(dictionary, "descr");
  const std::string_view type = descr.size() >= 4 ? descr.substr(1, 3) : std::string_view{};
  bool known = false;
  for (const auto& [text, dtype] : kDescriptions) {
    if (text == type) header.dtype = dtype, known = true;
  }
  header.shape = parse_shape(field(dictionary, "shape"));
  require<DataError>(known && !header.shape.empty() && field(dictionary, "fortran_order").starts_with("False"),
                     "{}: the header {} is not that of an index array", name,
                     dictionary.substr(0, dictionary.find_last_not_of(" \n") + 1));
  return header;
}

}  // namespace

NpyArray::NpyArray(NpyDtype dtype, std::vector<int64_t> shape) : dtype_(dtype), shape_(std::move(shape)) {
  const std::optional<int64_t> count = count_elements(shape_);
  require(count.has_value() && !shape_.empty(), "an array of shape ({}) is not possible", joined(shape_, ", "));
  num_elements_ = *count;
  owned_.resize(static_cast<size_t>(num_elements_) * size_of(dtype));
  data_ = owned_;
}

/// The whole file, in owned_ or *file_.
std::span<const std::byte> NpyArray::open(const std::filesystem::path& path) {
  std::error_code unknown;  // the size is then the largest number
  const bool is_read = std::filesystem::file_size(path, unknown) <= kLargestReadBytes;
  MappedFile file(path, is_read ? FileAccess::kPread : FileAccess::kMap);
  if (!is_read) return file_.emplace(std::move(file)).bytes();
  owned_.resize(file.size_bytes());
  file.read(0, owned_);
  return owned_;
}

NpyArray NpyArray::load(const std::filesystem::path& path) {
  NpyArray array;
  const std::span<const std::byte> file = array.open(path);
  Header header = parse_header(path, {reinterpret_cast<const char*>(file.data()), file.size()});
  array.dtype_ = header.dtype;
  array.shape_ = std::move(header.shape);
  const std::optional<int64_t> count = count_elements(array.shape_);
  const size_t available = file.size() - header.data_offset;
  require<DataError>(count.has_value() && static_cast<size_t>(*count) <= available / size_of(array.dtype_),
                     "{}: shape ({}) of {}-byte elements does not fit into {} bytes: the file is truncated",
                     path.string(), joined(array.shape_, ", "), size_of(array.dtype_), available);
  array.num_elements_ = *count;
  array.data_ = file.subspan(header.data_offset, static_cast<size_t>(*count) * size_of(array.dtype_));
  if (array.file_.has_value()) return array;
  array.owned_ = std::vector(array.data_.begin(), array.data_.end());
  array.data_ = array.owned_;
  return array;
}

void NpyArray::save(const std::filesystem::path& path) const {
  const std::string header = make_header(dtype_, shape_);
  const std::array<std::span<const std::byte>, 2> parts = {std::as_bytes(std::span(header)), data_};
  write_file_atomically(path, parts);
}

void NpyArray::check_owned(size_t element_bytes) const {
  require(!file_.has_value() && element_bytes == size_of(dtype_), "values() of a mapped array or of another type");
}

}  // namespace megatron
