// `integrity.json` of --verify-integrity: SHA-256 of the files of a checkpoint directory.
#pragma once

#include <string>
#include <vector>

#include "megatron/base/file_system.h"

namespace megatron {

inline constexpr const char* kIntegrityFile = "integrity.json";

/// Reads all files of the directory itself (not of directories in it) and writes and syncs their hashes.
void write_integrity(FileSystem& files, const std::string& directory);

/// @return what differs from the hashes, one line each; nothing if all is well.
/// @throw CheckpointError if there are no hashes, or they cannot be read.
std::vector<std::string> verify_integrity(const FileSystem& files, const std::string& directory);

}  // namespace megatron
