#include "megatron/dist_checkpointing/safetensors_folder.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"

namespace megatron {
namespace {

using Json = nlohmann::ordered_json;

/// Reports what is read from another source.
class CountedSource final : public TensorSource {
 public:
  CountedSource(std::unique_ptr<TensorSource> source, const std::function<void(int64_t)>& on_bytes)
      : source_(std::move(source)), on_bytes_(on_bytes) {}
  int64_t bytes() const override { return source_->bytes(); }
  std::span<const std::byte> read(int64_t begin, int64_t count) override {
    on_bytes_(count);
    return source_->read(begin, count);
  }
  void prepare() override { source_->prepare(); }
  void release() override { source_->release(); }

 private:
  std::unique_ptr<TensorSource> source_;
  const std::function<void(int64_t)>& on_bytes_;
};

Json parse_index(const FileSystem& files, const std::string& path) {
  Json index = Json::parse(read_file(files, path), nullptr, false);
  const bool is_valid = index.is_object() && index.contains("weight_map") && index["weight_map"].is_object() &&
                        std::ranges::all_of(index["weight_map"], [](const Json& file) { return file.is_string(); });
  require<CheckpointError>(is_valid,
                           "[safetensors] {} is no index: a JSON object is needed whose \"weight_map\" has the file of "
                           "each tensor. Fetch the file again.",
                           path);
  return index;
}

std::string shard_name(size_t number, size_t count) {
  return count == 1 ? std::string(kSafetensorsFile) : fmt::format("model-{:05}-of-{:05}.safetensors", number, count);
}

std::vector<std::vector<SafetensorsItem>> cut_into_shards(std::vector<SafetensorsItem> tensors, int64_t max_bytes) {
  std::vector<std::vector<SafetensorsItem>> shards(1);
  int64_t bytes = 0;
  for (SafetensorsItem& tensor : tensors) {
    if (!shards.back().empty() && bytes + tensor.source->bytes() > max_bytes) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += tensor.source->bytes();
    shards.back().push_back(std::move(tensor));
  }
  return shards;
}

}  // namespace

SafetensorsFolder::SafetensorsFolder(const FileSystem& files, const std::string& directory) : directory_(directory) {
  if (files.exists(join_path(directory_, kSafetensorsIndex))) {
    open_indexed(files);
    return;
  }
  require<CheckpointError>(files.exists(join_path(directory_, kSafetensorsFile)),
                           "[safetensors] {} has neither {} nor {}. Give the folder of a model in safetensors format; "
                           "files of torch (pytorch_model.bin) are not read.",
                           directory_, kSafetensorsFile, kSafetensorsIndex);
  files_.push_back(open(files, kSafetensorsFile));
  for (const auto& [name, tensor] : files_.front().tensors()) places_[name] = 0;
}

void SafetensorsFolder::open_indexed(const FileSystem& files) {
  const std::string path = join_path(directory_, kSafetensorsIndex);
  const Json index = parse_index(files, path);
  std::map<std::string, size_t> opened;
  for (const auto& [name, file] : index["weight_map"].items()) {
    const auto file_name = file.get<std::string>();
    const auto [place, is_new] = opened.emplace(file_name, files_.size());
    if (is_new) {
      require<CheckpointError>(files.exists(join_path(directory_, file_name)),
                               "[safetensors] {} is missing: {} says that it has {}. Fetch the file.",
                               join_path(directory_, file_name), path, name);
      files_.push_back(open(files, file_name));
    }
    require<CheckpointError>(files_[place->second].tensors().contains(name),
                             "[safetensors] {} has no tensor {}, which {} says it has. Fetch both files again.",
                             join_path(directory_, file_name), name, path);
    places_[name] = place->second;
  }
}

SafetensorsFile SafetensorsFolder::open(const FileSystem& files, const std::string& name) const {
  const std::string path = join_path(directory_, name);
  return {files.open_for_reading(path), path};
}

std::vector<std::string> SafetensorsFolder::names() const {
  std::vector<std::string> names;
  for (const auto& [name, place] : places_) names.push_back(name);
  return names;
}

const SafetensorsFile& SafetensorsFolder::file_of(std::string_view name) const {
  const auto found = places_.find(name);
  require<CheckpointError>(found != places_.end(), "[safetensors] {} has no tensor {}.", directory_, name);
  return files_[found->second];
}

void write_safetensors_folder(FileSystem& files, const std::string& directory, std::vector<SafetensorsItem> tensors,
                              int64_t max_shard_bytes, const std::function<void(int64_t)>& on_bytes) {
  int64_t total_bytes = 0, total_parameters = 0;
  std::map<std::string, std::string> weight_map;
  for (SafetensorsItem& tensor : tensors) {
    total_bytes += tensor.source->bytes();
    total_parameters += tensor.shape.num_elements();
    tensor.source = std::make_unique<CountedSource>(std::move(tensor.source), on_bytes);
  }
  std::vector<std::vector<SafetensorsItem>> shards = cut_into_shards(std::move(tensors), max_shard_bytes);
  for (size_t i = 0; i < shards.size(); ++i) {
    const std::string name = shard_name(i + 1, shards.size());
    for (const SafetensorsItem& tensor : shards[i]) weight_map[tensor.name] = name;
    const auto file = files.open_for_writing(join_path(directory, name), WriteMode::kTruncate);
    write_safetensors(*file, std::move(shards[i]), {{"format", "pt"}});
    file->sync();
    file->close();
  }
  if (shards.size() > 1) {
    const Json index = {{"metadata", {{"total_parameters", total_parameters}, {"total_size", total_bytes}}},
                        {"weight_map", weight_map}};
    replace_file(files, join_path(directory, kSafetensorsIndex), index.dump(2) + "\n");
  }
  files.sync_directory(directory);
}

}  // namespace megatron
