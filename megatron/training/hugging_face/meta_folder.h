// A Llama as Meta publishes it: params.json, and consolidated.00.pth, consolidated.01.pth and so on.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/dist_checkpointing/torch_file.h"
#include "megatron/models/hugging_face/meta_llama.h"
#include "megatron/training/hugging_face/weight_folder.h"

namespace megatron {

inline constexpr const char* kMetaParamsFile = "params.json";

/// Reads the parts that are asked for and puts those of all files together. Pickles are read without executing
/// anything (dist_checkpointing/pickle).
class MetaFolder final : public WeightFolder {
 public:
  /// @throw CheckpointError if files are missing or damaged, or have other tensors than the table says.
  MetaFolder(const FileSystem& files, const std::string& directory);

  /// The config.json that describes the model. @throw NotSupported as hugging_face::meta_llama_config
  hugging_face::Json config() const;

  const std::string& directory() const override { return directory_; }
  std::vector<std::string> names() const override;
  bool contains(std::string_view name) const override { return tensors_.find(name) != tensors_.end(); }
  Tensor tensor(std::string_view name) const override { return at(name).tensor; }
  void read_box(std::string_view name, const Box& box, std::byte* destination,
                const Shape& destination_strides) const override;

 private:
  struct Source {
    Tensor tensor;                   // whole
    std::vector<TorchTensor> parts;  // in each file; one if every file has all of it
    int split_dim = 0;               // along which the parts follow each other
    int64_t head_rows = 0;           // rows of a head whose rows are permuted; 0: they are in order
  };
  struct File {
    std::unique_ptr<TorchFile> file;
    std::map<std::string, const pickle::Object*> tensors;  // by Meta's names
  };
  void open(const FileSystem& files);
  void add(const hugging_face::MetaRule& rule, const std::string& layer);
  const Source& at(std::string_view name) const;
  /// The stored order.
  void read_parts(const Source& source, const Box& box, std::byte* destination, const Shape& strides) const;
  void read_permuted(const Source& source, const Box& box, std::byte* destination, const Shape& strides) const;

  std::string directory_;
  hugging_face::Json params_;
  std::vector<File> files_;
  std::map<std::string, Source, std::less<>> tensors_;  // by Hugging Face's names
  std::vector<std::string> unknown_;                    // Meta's names of tensors that no rule is about
};

}  // namespace megatron
