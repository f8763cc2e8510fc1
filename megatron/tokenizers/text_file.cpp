#include "megatron/tokenizers/text_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "megatron/base/error.h"

namespace megatron {

std::string read_text_file(const std::string& path, const std::string& purpose) {
  require<IoError>(!std::filesystem::is_directory(path), "cannot read {} from {}: it is a directory", purpose, path);
  std::ifstream file(path, std::ios::binary);
  require<IoError>(file.is_open(), "cannot read {} from {}: {}", purpose, path, std::strerror(errno));
  std::ostringstream content;
  content << file.rdbuf();
  require<IoError>(!file.bad() && !content.bad(), "cannot read {} from {}: {}", purpose, path, std::strerror(errno));
  return std::move(content).str();
}

}  // namespace megatron
