// The cache files of built indices, kept between runs and shared between ranks.
#pragma once

#include <filesystem>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megatron/base/message_log.h"
#include "megatron/datasets/npy_array.h"

namespace megatron {

/// One array of a cache entry: the end of its file's name, and the shape that it must have.
struct CachedArray {
  std::string name;
  std::vector<int64_t> shape;
};

/// One entry of the index cache: `<directory>/<stem>-<name>.npy` for each array, and `<stem>-description.txt`.
struct CacheEntry {
  std::filesystem::path directory;  // empty: nothing is cached
  std::string stem;
  std::string description;
  std::vector<CachedArray> arrays;
  /// Checks arrays of these shapes from the cache, in the order of `arrays`, and throws a DataError
  /// if they cannot belong to the data. Empty: no check.
  std::function<void(std::span<const NpyArray>)> check;
  bool write = true;

  std::filesystem::path path_of(const std::string& name) const { return directory / (stem + "-" + name); }
};

/// Gives the arrays of `entry`: mapped from the cache when all its files are there, else from `build`, written to the
/// cache if `entry.write` is set. Files are written atomically, so ranks may do this at the same time.
///
/// Cached arrays that are damaged, have other shapes or fail `entry.check` are built again, with a warning. A
/// cache that cannot be written gives only a warning; the indices are then kept in memory.
/// @param what  for messages, such as "GPTDataset train indices".
/// @throw the exceptions of `build`.
std::vector<NpyArray> load_or_build(const CacheEntry& entry, const std::string& what,
                                    const std::function<std::vector<NpyArray>()>& build, const MessageLog& log);

}  // namespace megatron
