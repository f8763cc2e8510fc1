// The tensors of a Hugging Face model as numbers to compute with, whatever they are stored as.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "megatron/dist_checkpointing/safetensors_folder.h"
#include "megatron/models/hugging_face/quantization.h"
#include "megatron/training/hugging_face/weight_folder.h"

namespace megatron {

/// Reads as SafetensorsFolder does, and dequantises the parts that are asked for to bf16: a quantised tensor has its
/// name in models that are not quantised, and the tensors it is stored in are not listed.
///   fp8: value = e4m3 * factor of its block, in fp32, rounded once (DeepSeek-V3, weight_dequant).
///   mxfp4 [.., out, in]: value = e2m1 * 2^(scale - 127), exact; given as [.., in, out], as transformers has it.
/// Source: OCP Microscaling Formats 1.0; transformers, integrations/mxfp4.py.
class DequantizedFolder final : public WeightFolder {
 public:
  /// @throw CheckpointError as SafetensorsFolder, or if scales do not fit what they scale.
  DequantizedFolder(const FileSystem& files, const std::string& directory,
                    const std::optional<hugging_face::Quantization>& quantization);

  const std::string& directory() const override { return stored_.directory(); }
  std::vector<std::string> names() const override;
  bool contains(std::string_view name) const override;
  Tensor tensor(std::string_view name) const override;
  void read_box(std::string_view name, const Box& box, std::byte* destination,
                const Shape& destination_strides) const override;

 private:
  /// The place of a quantised tensor.
  struct Source {
    std::string values, scales;
    Shape shape;  ///< dequantised
  };
  void find_fp8();
  void find_mxfp4();
  void read_fp8(const Source& source, const Box& box, BFloat16* destination, const Shape& strides) const;
  void read_mxfp4(const Source& source, const Box& box, BFloat16* destination, const Shape& strides) const;
  /// Numbers of a box of a stored tensor of floating type.
  std::vector<float> read_floats(const std::string& name, const Box& box) const;
  std::vector<uint8_t> read_bytes(const std::string& name, const Box& box) const;

  SafetensorsFolder stored_;
  std::optional<hugging_face::Quantization> quantization_;
  std::map<std::string, Source, std::less<>> sources_;  // by the name that it is given under
};

}  // namespace megatron
