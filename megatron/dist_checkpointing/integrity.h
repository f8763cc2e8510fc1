// `integrity.json` of --verify-integrity: SHA-256 of the files of a checkpoint directory.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"

namespace megatron {

inline constexpr const char* kIntegrityFile = "integrity.json";

/// Decides if a checkpoint gets hashes of its files.
enum class Integrity { kNone, kSha256 };

/// SHA-256 in hexadecimal, by the names of files in a directory.
using FileHashes = std::map<std::string, std::string>;

/// Writes and syncs the hashes of all files of the directory itself (not of directories in it).
/// @param known  taken as they are; other files are read.
void write_integrity(FileSystem& files, const std::string& directory, const FileHashes& known);

/// @return what differs from the hashes, one line each; nothing if all is well.
/// @throw CheckpointError if there are no hashes, or they cannot be read.
std::vector<std::string> verify_integrity(const FileSystem& files, const std::string& directory);

}  // namespace megatron
