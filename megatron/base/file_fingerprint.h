// Tells files apart without reading all of them.
#pragma once

#include <string>

#include "megatron/base/file_system.h"

namespace megatron {

/// "1384 bytes, md5 d41d8cd98f00b204e9800998ecf8427e", or "missing". The MD5 is of up to 64 blocks of 4096 bytes at
/// even distances, first and last included: of the whole file up to 256 KiB. What differs between the blocks alone goes
/// unnoticed. @throw IoError if the file cannot be read
std::string file_fingerprint(const FileSystem& files, const std::string& path);

}  // namespace megatron
