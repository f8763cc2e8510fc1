// Files of vocabularies and merge rules.
#pragma once

#include <string>
#include <string_view>

namespace megatron {

/// @param flag  the flag that names the file, for the text of the error.
/// @param advice  how to mend a file that cannot be read, a sentence; by default to give the tokenizer's file.
/// @return all bytes of the file. @throw DataError if it is missing or cannot be read.
std::string read_tokenizer_file(std::string_view flag, const std::string& path, std::string_view advice);
std::string read_tokenizer_file(std::string_view flag, const std::string& path);

}  // namespace megatron
