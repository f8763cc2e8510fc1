// Integer arrays in NumPy's .npy format, in memory or mapped from a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

#include "megatron/base/mapped_file.h"

namespace megatron {

/// Element types that Megatron's index files have; all little-endian.
enum class NpyDtype { kInt16, kInt32, kUInt32, kInt64 };

/// Bytes of one element.
constexpr size_t size_of(NpyDtype dtype) {
  switch (dtype) {
    case NpyDtype::kInt16:
      return 2;
    case NpyDtype::kInt32:
    case NpyDtype::kUInt32:
      return 4;
    case NpyDtype::kInt64:
      return 8;
  }
  return 0;
}

/// A C-ordered array of integers of one or two dimensions, owned or mapped read-only from a file.
/// Reading is thread-safe. Source of the format: numpy.lib.format, versions 1.0 to 3.0.
class NpyArray {
 public:
  /// Files of at most a page are read instead of mapped: a map takes a page as well, and a process may have few
  /// (65,530 by Linux's vm.max_map_count), of which a blend of thousands of files needs several each.
  static constexpr size_t kLargestReadBytes = 4096;

  /// An owned array of zeros.
  NpyArray(NpyDtype dtype, std::vector<int64_t> shape);

  /// Reads or maps a file. @throw IoError if it cannot be opened; DataError if it is not such an array or is truncated.
  static NpyArray load(const std::filesystem::path& path);
  /// Writes the file atomically, with the header that NumPy writes. @throw IoError
  void save(const std::filesystem::path& path) const;

  NpyDtype dtype() const { return dtype_; }
  const std::vector<int64_t>& shape() const { return shape_; }
  int64_t num_elements() const { return num_elements_; }
  /// The elements' bytes, without the header.
  std::span<const std::byte> bytes() const { return data_; }

  /// Element `i` of the flattened array; the caller keeps 0 <= i < num_elements().
  int64_t operator[](int64_t i) const {
    const std::byte* at = data_.data() + static_cast<size_t>(i) * size_of(dtype_);
    switch (dtype_) {
      case NpyDtype::kInt16:
        return load_as<int16_t>(at);
      case NpyDtype::kInt32:
        return load_as<int32_t>(at);
      case NpyDtype::kUInt32:
        return load_as<uint32_t>(at);
      case NpyDtype::kInt64:
        return load_as<int64_t>(at);
    }
    return 0;
  }

  /// The elements of an owned array for writing. `T` must have the dtype's size. @throw InternalError otherwise.
  template <class T>
  std::span<T> values() {
    check_owned(sizeof(T));
    return {reinterpret_cast<T*>(owned_.data()), static_cast<size_t>(num_elements_)};
  }

 private:
  NpyArray() = default;
  std::span<const std::byte> open(const std::filesystem::path& path);
  template <class T>
  static int64_t load_as(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof(T));
    return value;
  }
  void check_owned(size_t element_bytes) const;

  NpyDtype dtype_ = NpyDtype::kInt64;
  std::vector<int64_t> shape_;
  int64_t num_elements_ = 0;
  std::vector<std::byte> owned_;
  std::optional<MappedFile> file_;
  std::span<const std::byte> data_;  // into owned_ or *file_; both keep their addresses when the array is moved
};

}  // namespace megatron
