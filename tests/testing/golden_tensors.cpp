#include "tests/testing/golden_tensors.h"

#include <cstring>

#include "tests/testing/source_tree.h"

namespace megatron::testing {
namespace {

template <class To, class From>
std::vector<To> converted(const std::vector<std::byte>& bytes) {
  std::vector<From> read(bytes.size() / sizeof(From));
  std::memcpy(read.data(), bytes.data(), bytes.size());
  return std::vector<To>(read.begin(), read.end());
}

}  // namespace

GoldenTensors::GoldenTensors(const std::string& path)
    : file_(PosixFileSystem().open_for_reading(golden_path(path)), path) {}

std::vector<std::string> GoldenTensors::names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : file_.tensors()) names.push_back(name);
  return names;
}

std::vector<double> GoldenTensors::values(const std::string& name) const {
  if (file_.tensor(name).type == ElementType::kFloat32) return converted<double, float>(file_.read(name));
  if (file_.tensor(name).type == ElementType::kFloat64) return converted<double, double>(file_.read(name));
  const std::vector<int64_t> whole = integers(name);
  return std::vector<double>(whole.begin(), whole.end());
}

std::vector<int64_t> GoldenTensors::integers(const std::string& name) const {
  const std::vector<std::byte> bytes = file_.read(name);
  switch (file_.tensor(name).type) {
    case ElementType::kInt64:
      return converted<int64_t, int64_t>(bytes);
    case ElementType::kInt16:
      return converted<int64_t, int16_t>(bytes);
    case ElementType::kUInt8:
      return converted<int64_t, uint8_t>(bytes);
    default:
      throw DataError(fmt::format("'{}' does not hold integers", name));
  }
}

}  // namespace megatron::testing
