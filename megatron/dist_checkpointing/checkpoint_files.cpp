#include "megatron/dist_checkpointing/checkpoint_files.h"

#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/metadata_pickle.h"
#include "megatron/dist_checkpointing/zip_archive.h"

namespace megatron {
namespace {

constexpr const char* kBackend = "torch_dist";
constexpr int kBackendVersion = 1;

std::span<const std::byte> bytes_of(std::string_view content) { return std::as_bytes(std::span(content)); }

std::string checksum_line(const std::string& content) { return fmt::format("{:08x}\n", crc32(bytes_of(content), 0)); }

std::string read_small_file(const FileSystem& files, const std::string& path) {
  try {
    return read_file(files, path);
  } catch (const IoError& error) {
    throw CheckpointError(
        fmt::format("[checkpoint] {}: {}. Restore the file, or load another checkpoint.", path, error.what()));
  }
}

/// Plain torch.distributed.checkpoint writes no such file.
void require_backend(const FileSystem& files, const std::string& directory) {
  const std::string path = join_path(directory, kBackendFile);
  if (!files.exists(path)) return;
  const auto backend = nlohmann::json::parse(read_small_file(files, path), nullptr, /*allow_exceptions=*/false);
  require<CheckpointError>(backend.is_object(), "[checkpoint] {} is damaged: it is no JSON object. Restore it.", path);
  const bool known = backend.value("sharded_backend", nlohmann::json()) == kBackend &&
                     backend.value("sharded_backend_version", nlohmann::json(kBackendVersion)) == kBackendVersion;
  require<CheckpointError>(known,
                           "[checkpoint] {} says {}; only {} version {} can be read. Convert the checkpoint with "
                           "the program that wrote it.",
                           path, backend.dump(), kBackend, kBackendVersion);
}

}  // namespace

std::string data_file_name(int rank, int index) { return fmt::format("__{}_{}.distcp", rank, index); }

void write_synced(FileSystem& files, const std::string& path, std::string_view content) {
  const auto file = files.open_for_writing(path, WriteMode::kTruncate);
  file->append(bytes_of(content));
  file->sync();
  file->close();
}

void write_index(FileSystem& files, const std::string& directory, const CheckpointMetadata& metadata) {
  const std::string index = write_metadata(metadata);
  write_synced(files, join_path(directory, kMetadataFile), index);
  write_synced(files, join_path(directory, kMetadataChecksumFile), checksum_line(index));
  write_synced(files, join_path(directory, kBackendFile),
               fmt::format(R"({{"sharded_backend": "{}", "sharded_backend_version": {}}})", kBackend, kBackendVersion));
  files.sync_directory(directory);
}

void remove_index_and_data(FileSystem& files, const std::string& directory, const CheckpointMetadata& metadata) {
  std::set<std::string> names = {kBackendFile, kMetadataFile, kMetadataChecksumFile};
  for (const auto& [key, item] : metadata.objects) names.insert(item.file);
  for (const auto& [key, tensor] : metadata.tensors)
    for (const StoredChunk& chunk : tensor.chunks) names.insert(chunk.item.file);
  for (const std::string& name : names) files.remove(join_path(directory, name));
}

CheckpointMetadata read_index(const FileSystem& files, const std::string& directory) {
  const std::string path = join_path(directory, kMetadataFile);
  require<CheckpointError>(files.exists(path),
                           "[checkpoint] {} does not exist: {} is no complete checkpoint. Load another iteration "
                           "(--ckpt-step).",
                           path, directory);
  require_backend(files, directory);
  const std::string index = read_small_file(files, path);
  const std::string checksum_path = join_path(directory, kMetadataChecksumFile);
  if (files.exists(checksum_path))
    require<CheckpointError>(read_small_file(files, checksum_path) == checksum_line(index),
                             "[checkpoint] {} does not have the checksum in {}. Restore it or load another checkpoint; "
                             "if another program rewrote it on purpose, delete {}.",
                             path, checksum_path, kMetadataChecksumFile);
  return parse_metadata(bytes_of(index), path);
}

}  // namespace megatron
