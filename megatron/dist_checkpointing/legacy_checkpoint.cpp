#include "megatron/dist_checkpointing/legacy_checkpoint.h"

#include <fmt/core.h>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/legacy_assembly.h"

namespace megatron {
namespace {

constexpr std::string_view kRankPrefix = "mp_rank_";

}  // namespace

std::string LegacyCheckpoint::first_file(const FileSystem& files, const std::string& directory) {
  for (const DirectoryEntry& entry : files.list(directory))  // sorted: the first rank comes first
    if (entry.name.starts_with(kRankPrefix))
      return join_path(join_path(directory, entry.name), LegacyAssembly::kModelFile);
  return {};
}

bool LegacyCheckpoint::is_in(const FileSystem& files, const std::string& directory) {
  if (!files.exists(directory)) return false;
  const std::string first = first_file(files, directory);
  return !first.empty() && files.exists(first);
}

LegacyCheckpoint::LegacyCheckpoint(const FileSystem& files, const std::string& directory) {
  LegacyAssembly(files, directory, *this).run();
}

void LegacyCheckpoint::read_box(std::string_view key, size_t chunk, const Box& box, std::byte* destination,
                                const Shape& strides, bool verify) const {
  const Source& source = sources_.find(key)->second[chunk];
  source.file->read_box(source.tensor, box, destination, strides, verify);
}

std::vector<std::string> LegacyCheckpoint::verify() const {
  std::vector<std::string> problems;
  for (const auto& file : files_) {
    try {
      file->verify();
    } catch (const Error& error) {
      problems.emplace_back(error.what());
    }
  }
  for (const auto& [key, tensor] : metadata_.tensors)
    if (const auto problem = tensor.tiling_problem()) problems.push_back(fmt::format("{}: {}", key, *problem));
  return problems;
}

}  // namespace megatron
