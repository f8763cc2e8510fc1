// Files that are compressed by zstd (RFC 8878).
#pragma once

#include <string_view>

#include "megatron/tokenizers/unpacked_file.h"

namespace megatron {

constexpr std::string_view kZstdMagic = "\x28\xB5\x2F\xFD";  // not UTF-8

/// True if this build has libzstd.
bool has_zstd();
/// @throw IoError if the file cannot be opened, NotSupported without libzstd.
std::unique_ptr<UnpackedFile> open_zstd(const std::string& path);

}  // namespace megatron
