#include "megatron/tokenizers/tokenizer_file.h"

#include "megatron/base/error.h"
#include "megatron/base/file_system.h"

namespace megatron {

std::string read_tokenizer_file(std::string_view flag, const std::string& path, std::string_view advice) {
  try {
    return read_file(PosixFileSystem(), path);
  } catch (const IoError& error) {
    throw DataError(fmt::format("{} {}: {}. {}", flag, path, error.what(), advice));
  }
}

std::string read_tokenizer_file(std::string_view flag, const std::string& path) {
  return read_tokenizer_file(flag, path, "Give the file that belongs to the tokenizer.");
}

}  // namespace megatron
