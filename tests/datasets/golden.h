// Expected values that Megatron itself produced (tests/golden/data), and files for tests.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/md5.h"
#include "tests/testing/source_tree.h"

namespace megatron::testing {

inline const std::string kGoldenData = golden_path("data");

/// A JSON file of tests/golden/data. It stays in memory, so that a loop may run over a part of it.
const nlohmann::json& golden(const std::string& name);

/// Bytes of a file. Fails the test if it cannot be read.
std::string read_bytes(const std::filesystem::path& path);
void write_bytes(const std::filesystem::path& path, std::string_view bytes);

/// Makes a directory current for one test: prefixes are part of cache names, so they must be as they were.
class WorkingDirectory {
 public:
  explicit WorkingDirectory(const std::filesystem::path& path) : before_(std::filesystem::current_path()) {
    std::filesystem::current_path(path);
  }
  ~WorkingDirectory() { std::filesystem::current_path(before_); }
  WorkingDirectory(const WorkingDirectory&) = delete;
  WorkingDirectory& operator=(const WorkingDirectory&) = delete;

 private:
  std::filesystem::path before_;
};

inline bool is_error(const nlohmann::json& value) { return value.is_object() && value.contains("error"); }
template <class T>
std::vector<T> list(const nlohmann::json& value) {
  return value.get<std::vector<T>>();
}
inline std::string md5_of(std::string_view bytes) { return md5_hex(std::as_bytes(std::span(bytes))); }

}  // namespace megatron::testing
