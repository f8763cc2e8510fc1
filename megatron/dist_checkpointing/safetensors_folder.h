// A model of Hugging Face on disk: one safetensors file, or several with an index.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/dist_checkpointing/safetensors.h"

namespace megatron {

inline constexpr const char* kSafetensorsFile = "model.safetensors";
inline constexpr const char* kSafetensorsIndex = "model.safetensors.index.json";

/// The tensors of a folder. The index decides where there is one; other files are ignored. Headers alone are in memory.
class SafetensorsFolder {
 public:
  /// @throw CheckpointError if there is neither index nor file, the index is damaged, or a file lacks a tensor that the
  /// index says it has.
  SafetensorsFolder(const FileSystem& files, const std::string& directory);

  const std::string& directory() const { return directory_; }
  std::vector<std::string> names() const;
  bool contains(std::string_view name) const { return places_.contains(name); }
  /// @throw CheckpointError if there is no such tensor.
  const SafetensorsFile::Tensor& tensor(std::string_view name) const { return file_of(name).tensor(name); }
  /// Reads a box like SafetensorsFile::read_box.
  void read_box(std::string_view name, const Box& box, std::byte* destination, const Shape& destination_strides) const {
    file_of(name).read_box(name, box, destination, destination_strides);
  }

 private:
  void open_indexed(const FileSystem& files);
  SafetensorsFile open(const FileSystem& files, const std::string& name) const;
  const SafetensorsFile& file_of(std::string_view name) const;

  std::string directory_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, size_t, std::less<>> places_;  // in files_
};

/// Writes tensors in their order to files of at most `max_shard_bytes` (a larger tensor has a file of its own), synced:
/// model.safetensors, or model-00001-of-0000N.safetensors with an index.
/// @param directory  exists. @param on_bytes  told how many bytes of tensors have been read since it was last called.
void write_safetensors_folder(FileSystem& files, const std::string& directory, std::vector<SafetensorsItem> tensors,
                              int64_t max_shard_bytes, const std::function<void(int64_t)>& on_bytes);

}  // namespace megatron
