// Files that appear complete or not at all.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace megatron {

/// Writes the parts one after the other to a temporary file beside `path` and renames it to `path`. Readers see the old
/// file or the whole new one; any number of writers of the same content may run at once. Creates missing directories.
/// @throw IoError if the directory cannot be created or the file cannot be written; then nothing is left behind.
void write_file_atomically(const std::filesystem::path& path, std::span<const std::span<const std::byte>> parts);

}  // namespace megatron
