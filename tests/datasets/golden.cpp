#include "tests/datasets/golden.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>

namespace megatron::testing {

std::string read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << "cannot read " << path;
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_bytes(const std::filesystem::path& path, std::string_view bytes) {
  std::filesystem::remove(path);  // some file systems flush a file that is written over
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  EXPECT_TRUE(file.good()) << "cannot write " << path;
}

const nlohmann::json& golden(const std::string& name) {
  static std::map<std::string, nlohmann::json> files;
  const auto [file, missing] = files.try_emplace(name);
  if (missing) file->second = nlohmann::json::parse(read_bytes(kGoldenData + "/" + name));
  return file->second;
}

}  // namespace megatron::testing
