// Whole small files: vocabularies and plain text.
#pragma once

#include <string>

namespace megatron {

/// Content of a file. `purpose` says what it is for, such as "the vocabulary (--vocab-file)".
/// @throw IoError naming purpose, path and reason if it cannot be read.
std::string read_text_file(const std::string& path, const std::string& purpose);

}  // namespace megatron
