// The safetensors format of Hugging Face: a JSON header and then the tensors' bytes.
// Source: the format's description at github.com/huggingface/safetensors and what its library 0.8 accepts.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/core/box.h"
#include "megatron/dist_checkpointing/element_type.h"
#include "megatron/dist_checkpointing/tensor_source.h"

namespace megatron {

/// A file opened for reading. The header is validated completely: the tensors' bytes follow each other without gap or
/// overlap and end where the file ends. Accepts and refuses what the format's own library does.
class SafetensorsFile {
 public:
  struct Tensor {
    ElementType type = ElementType::kFloat32;
    Shape shape;
    int64_t offset = 0, bytes = 0;  // in the file
  };

  /// @param source  names the file in errors.
  /// @throw CheckpointError if the header is damaged or the file is cut short.
  SafetensorsFile(std::unique_ptr<ReadableFile> file, std::string source);

  const std::map<std::string, Tensor, std::less<>>& tensors() const { return tensors_; }
  const std::map<std::string, std::string, std::less<>>& metadata() const { return metadata_; }
  /// @throw CheckpointError if there is no such tensor.
  const Tensor& tensor(std::string_view name) const;

  std::vector<std::byte> read(std::string_view name) const;
  /// Copies a part of a tensor to host memory with these strides (in elements). @throw NotSupported for types below a
  /// byte.
  void read_box(std::string_view name, const Box& box, std::byte* destination, const Shape& destination_strides) const;

 private:
  std::unique_ptr<ReadableFile> file_;
  std::string source_;
  std::map<std::string, Tensor, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> metadata_;
};

struct SafetensorsItem {
  std::string name;
  ElementType type = ElementType::kFloat32;
  Shape shape;
  std::unique_ptr<TensorSource> source;
};

/// Appends a file as the format's library writes it: wider types first, then by name. Not synced or closed.
/// @throw NotSupported for types that the format does not know. @throw ShapeError for a source of another size.
void write_safetensors(WritableFile& file, std::vector<SafetensorsItem> tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace megatron
