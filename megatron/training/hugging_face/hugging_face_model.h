// A folder of a Hugging Face model in Megatron's terms: arguments and weights.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/dist_checkpointing/stored_tensors.h"
#include "megatron/models/hugging_face/quantization.h"
#include "megatron/models/hugging_face/weight_map.h"
#include "megatron/training/config/pretrain_config.h"
#include "megatron/training/hugging_face/weight_folder.h"

namespace megatron {

inline constexpr const char* kHuggingFaceConfigFile = "config.json";
/// The folder within a checkpoint that keeps config.json and the other small files of a model from Hugging Face.
inline constexpr const char* kHuggingFaceFolder = "hugging_face";
/// Files beside the weights that an import keeps and an export gives back, where they are there.
std::vector<std::string> hugging_face_side_files();
/// Those of them that a training run keeps with its checkpoints, which have the tokenizer already.
std::vector<std::string> hugging_face_config_files();
using SmallFiles = std::map<std::string, std::string>;  ///< content by name
/// Those of the files that are in the folder.
SmallFiles read_small_files(const FileSystem& files, const std::string& folder, const std::vector<std::string>& names);
/// Writes them into kHuggingFaceFolder of a checkpoint that is not committed yet, synced.
void keep_hugging_face_files(FileSystem& files, const std::string& checkpoint, const SmallFiles& kept);

/// The content of config.json.
struct HuggingFaceModel {
  std::string directory;
  hugging_face::Family family;
  hugging_face::Json json;                                      ///< config.json
  hugging_face::Json arguments;                                 ///< under Megatron's names; without tokenizer
  std::optional<hugging_face::Quantization> quantization = {};  ///< of the weights beside it
  bool is_meta_format = false;                                  ///< the weights are a MetaFolder

  /// A run of this model on one rank, its vocabulary padded as the flags' defaults have it.
  PretrainConfig config() const;
};

/// A folder without config.json may be a Llama as Meta publishes it (MetaFolder).
/// @throw CheckpointError if config.json is missing or damaged. @throw NotSupported listing what cannot be converted.
HuggingFaceModel read_hugging_face_model(const FileSystem& files, const std::string& directory);

/// Reads a config.json, without looking at weights. @param source  names it in errors. @throw as above
HuggingFaceModel described_model(hugging_face::Json config, const std::string& source);

/// The model that --use-checkpoint-args would take from a checkpoint, as its JSON text.
std::string hugging_face_arguments(const FileSystem& files, const std::string& directory);

/// Names the tokenizer beside the weights in the flags; NullTokenizer where there is none of a known form.
void take_hugging_face_tokenizer(const FileSystem& files, const std::string& directory, TokenizerConfig& flags);

/// The parameters of the model that `config` describes and what they are made of.
hugging_face::WeightMap weight_map_of(const hugging_face::Family& family, const PretrainConfig& config);

/// The weights of a folder under Megatron's names. Reads the parts that are asked for, and no others.
class HuggingFaceWeights final : public StoredTensors {
 public:
  /// @throw CheckpointError listing tensors that are missing, unknown, or of another shape than config.json says.
  HuggingFaceWeights(const FileSystem& files, const HuggingFaceModel& model, hugging_face::WeightMap map);

  const hugging_face::WeightMap& map() const { return map_; }
  const WeightFolder& folder() const { return *folder_; }
  /// The name in the folder of a tensor of the map: older files of some families leave the common prefix out.
  std::string name_in_folder(const std::string& tensor) const;

  std::optional<ElementType> type_of(std::string_view key) const override;
  void read_tensor(std::string_view key, const Shape& global_shape, const Shape& offsets,
                   const View& destination) const override;
  void read_resized_tensor(std::string_view key, const Shape& offsets, const View& destination) const override;

 private:
  void require_all_tensors(const HuggingFaceModel& model) const;
  void require_equal_copies() const;
  const std::vector<size_t>& layers_of(std::string_view key) const;
  void read_layer(const hugging_face::ParameterPieces& parameter, const Box& wanted, std::byte* destination,
                  const Shape& strides) const;

  std::unique_ptr<const WeightFolder> folder_;
  hugging_face::WeightMap map_;
  std::map<std::string, std::vector<size_t>, std::less<>> by_key_;  // in map_.parameters()
};

}  // namespace megatron
