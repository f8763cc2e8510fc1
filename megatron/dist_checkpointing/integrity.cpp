#include "megatron/dist_checkpointing/integrity.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/checkpoint_files.h"
#include "megatron/dist_checkpointing/sha256.h"

namespace megatron {
namespace {

constexpr const char* kAlgorithm = "sha256";
constexpr int64_t kPieceBytes = 4 << 20;

std::string hash_file(const FileSystem& files, const std::string& path) {
  const auto file = files.open_for_reading(path);
  std::vector<std::byte> piece;
  Sha256 hash;
  for (int64_t offset = 0; offset < file->size(); offset += kPieceBytes) {
    piece.resize(static_cast<size_t>(std::min(kPieceBytes, file->size() - offset)));
    file->read(offset, piece);
    hash.add(piece);
  }
  return hash.hex();
}

}  // namespace

void write_integrity(FileSystem& files, const std::string& directory, const FileHashes& known) {
  nlohmann::ordered_json hashes = nlohmann::ordered_json::object();
  for (const DirectoryEntry& entry : files.list(directory))
    if (entry.type == EntryType::kFile && entry.name != kIntegrityFile)
      hashes[entry.name] =
          known.contains(entry.name) ? known.at(entry.name) : hash_file(files, join_path(directory, entry.name));
  const nlohmann::ordered_json manifest = {{"algorithm", kAlgorithm}, {"files", hashes}};
  write_synced(files, join_path(directory, kIntegrityFile), manifest.dump());
  files.sync_directory(directory);
}

std::vector<std::string> verify_integrity(const FileSystem& files, const std::string& directory) {
  const std::string path = join_path(directory, kIntegrityFile);
  require<CheckpointError>(
      files.exists(path),
      "[checkpoint] {} does not exist. The checkpoint was saved without --verify-integrity; load it "
      "without.",
      path);
  const auto manifest = nlohmann::json::parse(read_file(files, path), nullptr, /*allow_exceptions=*/false);
  const bool valid = manifest.is_object() && manifest.value("algorithm", nlohmann::json()) == kAlgorithm &&
                     manifest.contains("files") && manifest["files"].is_object();
  require<CheckpointError>(valid, "[checkpoint] {} is damaged: it holds no {} hashes. Restore it.", path, kAlgorithm);
  std::vector<std::string> problems;
  for (const auto& [name, expected] : manifest["files"].items()) {
    const std::string file = join_path(directory, name);
    if (!files.exists(file)) {
      problems.push_back(fmt::format("{} is missing", file));
      continue;
    }
    const std::string actual = hash_file(files, file);
    if (expected != actual)
      problems.push_back(
          fmt::format("{} was changed: its {} is {}, {} was recorded", file, kAlgorithm, actual, expected.dump()));
  }
  return problems;
}

}  // namespace megatron
