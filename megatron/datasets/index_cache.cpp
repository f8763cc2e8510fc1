#include "megatron/datasets/index_cache.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <span>
#include <system_error>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"
#include "megatron/datasets/atomic_file.h"

namespace megatron {
namespace {

constexpr const char* kDescriptionName = "description.txt";

std::string file_name(const CachedArray& array) { return array.name + ".npy"; }

bool all_files_exist(const CacheEntry& entry) {
  std::error_code ignored;
  bool exist = std::filesystem::is_regular_file(entry.path_of(kDescriptionName), ignored);
  for (const CachedArray& array : entry.arrays) {
    exist = exist && std::filesystem::is_regular_file(entry.path_of(file_name(array)), ignored);
  }
  return exist;
}

/// The arrays of the cache, or nothing (with a warning) if one is damaged or was made from other data.
/// @param check  entry.check, or none for arrays that have just been written.
std::optional<std::vector<NpyArray>> load(const CacheEntry& entry,
                                          const std::function<void(std::span<const NpyArray>)>& check,
                                          const MessageLog& log) {
  std::vector<NpyArray> arrays;
  try {
    for (const CachedArray& expected : entry.arrays) {
      const std::filesystem::path path = entry.path_of(file_name(expected));
      log.info(fmt::format("\tLoad the {} from {}", expected.name, path.filename().string()));
      arrays.push_back(NpyArray::load(path));
      require<DataError>(arrays.back().shape() == expected.shape,
                         "{}: has shape ({}), but the data gives ({}): the data was preprocessed again since",
                         path.string(), joined(arrays.back().shape(), ", "), joined(expected.shape, ", "));
    }
    if (check) check(arrays);
  } catch (const Error& error) {
    log.warning(fmt::format("{}. The cached indices {} are built again.", error.what(), entry.path_of("*").string()));
    return std::nullopt;
  }
  return arrays;
}

/// Writes the entry; false (with a warning) if that is not possible.
bool store(const CacheEntry& entry, std::span<const NpyArray> arrays, const MessageLog& log) {
  try {
    const std::array<std::span<const std::byte>, 1> text = {std::as_bytes(std::span(entry.description))};
    write_file_atomically(entry.path_of(kDescriptionName), text);
    for (size_t i = 0; i < arrays.size(); ++i) arrays[i].save(entry.path_of(file_name(entry.arrays[i])));
    return true;
  } catch (const IoError& error) {
    log.warning(
        fmt::format("{}. The indices are kept in memory, and every rank and run builds them again. Give a "
                    "writable directory with --data-cache-path.",
                    error.what()));
    return false;
  }
}

}  // namespace

std::vector<NpyArray> load_or_build(const CacheEntry& entry, const std::string& what,
                                    const std::function<std::vector<NpyArray>()>& build, const MessageLog& log) {
  const bool cached = !entry.directory.empty();
  if (cached && all_files_exist(entry)) {
    log.info(fmt::format("Load the {}", what));
    if (auto arrays = load(entry, entry.check, log)) return std::move(*arrays);
  }
  log.info(fmt::format("Build{} the {}", cached && entry.write ? " and save" : "", what));
  std::vector<NpyArray> built = build();
  if (!cached || !entry.write || !store(entry, built, log)) return built;
  const auto is_small = [](const NpyArray& array) { return array.bytes().size() <= NpyArray::kLargestReadBytes; };
  if (std::ranges::all_of(built, is_small)) return built;
  // The mapped files share memory between ranks; the built arrays would be one more copy.
  if (auto arrays = load(entry, {}, {})) return std::move(*arrays);
  return built;
}

}  // namespace megatron
