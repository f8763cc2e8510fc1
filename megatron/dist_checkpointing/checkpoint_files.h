// Names of the files in a checkpoint directory, and the small ones among them.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "megatron/base/file_system.h"
#include "megatron/dist_checkpointing/checkpoint_metadata.h"

namespace megatron {

inline constexpr const char* kMetadataFile = ".metadata";
/// CRC-32 of `.metadata` in hexadecimal, of which alone a flipped byte could go unnoticed. Others ignore it.
inline constexpr const char* kMetadataChecksumFile = ".metadata.crc32";
/// Names the format; its presence marks the directory as complete.
inline constexpr const char* kBackendFile = "metadata.json";
/// The file in which Megatron Core up to 0.16 keeps all that is no tensor.
inline constexpr const char* kCommonStateFile = "common.pt";

/// "__3_0.distcp"
std::string data_file_name(int rank, int index);

void write_synced(FileSystem& files, const std::string& path, std::string_view content);

/// Writes the index, its checksum and the backend file, in this order, and syncs them and the directory: what makes
/// a directory of data files a checkpoint.
void write_index(FileSystem& files, const std::string& directory, const CheckpointMetadata& metadata);

/// Removes what write_index() has written and the files that the index names; other files stay.
void remove_index_and_data(FileSystem& files, const std::string& directory, const CheckpointMetadata& metadata);

/// @throw CheckpointError if it is missing, damaged, or of another format.
CheckpointMetadata read_index(const FileSystem& files, const std::string& directory);

}  // namespace megatron
