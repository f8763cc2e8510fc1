#include "megatron/training/hugging_face/export_model.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <set>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"
#include "megatron/dist_checkpointing/checkpoint_files.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/dist_checkpointing/safetensors_folder.h"
#include "megatron/training/checkpoint/checkpoint_tokenizer.h"
#include "megatron/training/checkpoint/checkpointer.h"
#include "megatron/training/hugging_face/filled_source.h"
#include "megatron/training/hugging_face/hugging_face_model.h"
#include "megatron/training/hugging_face/import_model.h"
#include "megatron/training/hugging_face/model_arguments.h"
#include "megatron/training/training_data.h"

namespace megatron {
namespace {

using hugging_face::ParameterPieces;
using hugging_face::WeightMap;
using hugging_face::WeightPiece;

constexpr int64_t kMebibyte = 1 << 20;

/// One parameter of one layer as it is stored. Keeps the last one, as neighbouring tensors often share it.
class StoredParameter {
 public:
  explicit StoredParameter(const StoredTensors& tensors) : tensors_(tensors) {}

  const std::byte* read(const ParameterPieces& parameter) {
    if (held_ == &parameter) return values_.data();
    held_ = nullptr;
    const auto bytes = static_cast<size_t>(parameter.shape.num_elements() * size_of(type_of(parameter)));
    if (values_.size() < bytes) values_ = {};  // first, so that both are never in memory
    if (values_.size() < bytes) values_.resize(bytes);
    read_into(parameter, values_.data());
    held_ = &parameter;
    return values_.data();
  }
  void read_into(const ParameterPieces& parameter, std::byte* destination) const {
    const Box box = stored_box(parameter);
    const std::string key = found_key(tensors_, parameter.key);
    const View view{destination, info(type_of(parameter)).dtype.value(), box.sizes, box.sizes.contiguous_strides()};
    if (parameter.is_padded)
      tensors_.read_resized_tensor(key, box.offsets, view);
    else
      tensors_.read_tensor(key, stored_shape(parameter), box.offsets, view);
  }
  ElementType type_of(const ParameterPieces& parameter) const {
    const auto type = tensors_.type_of(found_key(tensors_, parameter.key));
    require<CheckpointError>(type && info(*type).dtype,
                             "[hugging_face] the checkpoint has no weights for {}. It must be of the model that "
                             "config.json describes.",
                             parameter.key);
    return *type;
  }

 private:
  const StoredTensors& tensors_;
  const ParameterPieces* held_ = nullptr;
  std::vector<std::byte> values_;
};

/// The parts of parameters that make up one Hugging Face tensor.
struct TensorParts {
  struct Part {
    const ParameterPieces* parameter;
    const WeightPiece* piece;
  };
  std::string name;
  Shape shape;
  std::vector<Part> parts;
};

/// In the order of the model's parameters.
std::vector<TensorParts> tensors_of(const WeightMap& map) {
  std::vector<TensorParts> tensors;
  std::map<std::string, size_t> places;
  for (const ParameterPieces& parameter : map.parameters())
    for (const WeightPiece& piece : parameter.pieces) {
      const auto [place, is_new] = places.emplace(piece.tensor, tensors.size());
      if (is_new) tensors.push_back({piece.tensor, map.tensors().at(piece.tensor), {}});
      tensors[place->second].parts.push_back({&parameter, &piece});
    }
  for (const auto& [copy, original] : map.copies()) {
    tensors.push_back(tensors[places.at(original)]);
    tensors.back().name = copy;
  }
  return tensors;
}

void copy_piece(const std::byte* parameter, const Shape& parameter_shape, const WeightPiece& piece, std::byte* tensor,
                const Shape& tensor_shape, int64_t element_bytes) {
  const Shape here = parameter_shape.contiguous_strides(), there = tensor_shape.contiguous_strides();
  const std::byte* from = parameter + element_offset(piece.here.offsets, here) * element_bytes;
  std::byte* to = tensor + element_offset(tensor_box(piece, piece.here).offsets, there) * element_bytes;
  for_each_run(piece.here.sizes, here, parameter_strides(piece, there), [&](int64_t a, int64_t b, int64_t count) {
    std::copy_n(from + a * element_bytes, count * element_bytes, to + b * element_bytes);
  });
}

/// Says whether the tensor has the bytes of one parameter in their order.
bool is_whole_parameter(const TensorParts& tensor) {
  if (tensor.parts.size() != 1) return false;
  const auto& [parameter, piece] = tensor.parts.front();
  const Shape strides = tensor.shape.contiguous_strides();
  return piece->here.sizes == parameter->shape && tensor.shape == parameter->shape &&
         parameter_strides(*piece, strides) == strides;
}

int64_t bytes_of(const TensorParts& tensor, const StoredParameter& stored) {
  return tensor.shape.num_elements() * size_of(stored.type_of(*tensor.parts.front().parameter));
}

/// @param bytes  bytes_of() the tensor
void assemble(const TensorParts& tensor, StoredParameter& stored, std::span<std::byte> bytes) {
  if (is_whole_parameter(tensor)) return stored.read_into(*tensor.parts.front().parameter, bytes.data());
  const int64_t element_bytes = size_of(stored.type_of(*tensor.parts.front().parameter));
  int64_t num_elements = 0;
  for (const auto& [parameter, piece] : tensor.parts) num_elements += piece->here.sizes.num_elements();
  if (num_elements < tensor.shape.num_elements()) std::ranges::fill(bytes, std::byte{0});
  for (const auto& [parameter, piece] : tensor.parts)
    copy_piece(stored.read(*parameter), parameter->shape, *piece, bytes.data(), tensor.shape, element_bytes);
}

/// The folder with the config.json to take; nothing: it is made from the stored arguments.
std::optional<std::string> config_folder(const FileSystem& files, const ExportOptions& options,
                                         const std::string& checkpoint) {
  if (options.config_from) return options.config_from;
  std::string kept = join_path(checkpoint, kHuggingFaceFolder);
  const bool is_kept = !options.model_type && files.exists(join_path(kept, kHuggingFaceConfigFile));
  return is_kept ? std::optional(std::move(kept)) : std::nullopt;
}

/// The checkpoint decides whether there are layers for further tokens: its config.json has their number without them,
/// too.
void take_further_layers(const PretrainConfig& stored, HuggingFaceModel& model) {
  const int64_t count = stored.transformer.mtp.num_layers;
  model.arguments.erase("mtp_num_layers");
  if (count == 0) return;
  model.arguments["mtp_num_layers"] = count;
  if (!model.family.num_further_layers.empty()) model.json[model.family.num_further_layers] = count;
}

void require_same_model_as(const PretrainConfig& described, const PretrainConfig& stored, const std::string& folder,
                           const std::string& checkpoint) {
  std::vector<std::string> others = model_differences(stored, described);
  const TransformerConfig &there = stored.transformer, &here = described.transformer;
  if (there.vocab_size > here.vocab_size || (there.padded_vocab_size > 0 && there.padded_vocab_size < here.vocab_size))
    others.push_back(fmt::format("vocab_size is {} there and {} here", there.vocab_size, here.vocab_size));
  require<CheckpointError>(others.empty(),
                           "[hugging_face] {} is of another model than the config.json in {} describes: {}. Give the "
                           "config.json of this model with --hf-config, or --hf-model-type to make one from the "
                           "arguments of the checkpoint.",
                           checkpoint, folder, joined(others, "; "));
}

void require_empty(const FileSystem& files, const std::string& directory) {
  require<CheckpointError>(!files.exists(directory) || files.list(directory).empty(),
                           "[hugging_face] --hf-path {} holds files already, which an export does not replace. Give a "
                           "new folder.",
                           directory);
}

/// config.json with the precision of the weights, which are not quantised.
std::string config_text(hugging_face::Json config, ElementType type) {
  const bool was_quantised = config.erase(hugging_face::kQuantizationConfig) > 0;
  if (was_quantised && !config.contains("dtype")) config["torch_dtype"] = name_of(type);
  for (const char* key : {"dtype", "torch_dtype"})
    if (config.contains(key)) config[key] = name_of(type);
  return config.dump(2) + "\n";
}

/// The model to write, whose config.json is that of `folder`, or fits the arguments of the checkpoint.
HuggingFaceModel model_to_export(const FileSystem& files, const std::optional<std::string>& folder,
                                 const PretrainConfig& stored, const ExportOptions& options,
                                 const std::string& checkpoint) {
  HuggingFaceModel model = folder ? read_hugging_face_model(files, *folder)
                                  : model_of_arguments(stored, options.model_type, options.preferred_type);
  take_further_layers(stored, model);
  if (folder) require_same_model_as(model.config(), stored, *folder, checkpoint);
  return model;
}

/// The tokenizer of the checkpoint's run; nothing where there is none, or none that text is known for.
std::unique_ptr<Tokenizer> stored_tokenizer(const FileSystem& files, const std::string& checkpoint,
                                            TokenizerConfig flags) {
  take_stored_files(files, checkpoint, flags);
  if (flags.tokenizer_type == "NullTokenizer") return nullptr;
  try {
    return tokenizer_of(flags);
  } catch (const Error&) {  // its files are no longer there
    return nullptr;
  }
}

/// The special tokens of a config.json that is made from arguments. Classes of transformers have defaults of their own,
/// which a smaller vocabulary may lack: a missing token is null.
void add_special_tokens(const Tokenizer* tokenizer, hugging_face::Json& json) {
  const auto id = [](const std::optional<TokenId>& token) {
    return token ? hugging_face::Json(*token) : hugging_face::Json();
  };
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = tokenizer != nullptr ? id(tokenizer->eod()) : id({});
  json["pad_token_id"] = tokenizer != nullptr ? id(tokenizer->pad()) : id({});
}

void write_generation_config(FileSystem& files, const std::string& directory, const hugging_face::Json& config) {
  hugging_face::Json json = {{"_from_model_config", true}};
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"})
    if (!config[key].is_null()) json[key] = config[key];
  write_synced(files, join_path(directory, "generation_config.json"), json.dump(2) + "\n");
}

/// Tokenizer and generation files, from the first of the folders that has them.
void copy_companions(FileSystem& files, const std::vector<std::string>& folders, const std::string& directory) {
  for (const std::string& name : hugging_face_side_files())
    for (const std::string& folder : folders) {
      if (name == kHuggingFaceConfigFile || !files.exists(join_path(folder, name))) continue;
      write_synced(files, join_path(directory, name), read_file(files, join_path(folder, name)));
      break;
    }
}

}  // namespace

void export_hugging_face(FileSystem& files, const ExportOptions& options, Progress& progress) {
  const std::string checkpoint = Checkpointer::stored_path(files, options.checkpoint);
  const PretrainConfig run = arguments_from_json(Checkpointer::stored_arguments(files, options.checkpoint));
  const std::optional<std::string> folder = config_folder(files, options, checkpoint);
  HuggingFaceModel model = model_to_export(files, folder, run, options, checkpoint);
  const PretrainConfig config = model.config();
  require_empty(files, options.directory);
  create_durable_directories(files, options.directory);

  const WeightMap map = weight_map_of(model.family, config);
  const CheckpointReader reader(files, checkpoint, Verify::kChecksums);
  StoredParameter stored(reader);
  BufferPool pool;
  std::vector<SafetensorsItem> items;
  int64_t total = 0, done = 0;
  for (TensorParts& tensor : tensors_of(map)) {
    const std::string name = tensor.name;
    const Shape shape = tensor.shape;
    const ElementType type = stored.type_of(*tensor.parts.front().parameter);
    const int64_t bytes = bytes_of(tensor, stored);
    const auto fill = [tensor = std::move(tensor), &stored](std::span<std::byte> out) {
      assemble(tensor, stored, out);
    };
    items.push_back({name, type, shape, std::make_unique<FilledSource>(bytes, pool, fill)});
    total += items.back().source->bytes();
  }
  const ElementType type = items.front().type;
  progress.begin({.title = "exporting", .unit = "MiB", .total = total / kMebibyte});
  write_safetensors_folder(files, options.directory, std::move(items), options.max_shard_bytes,
                           [&](int64_t bytes) { progress.update((done += bytes) / kMebibyte, ""); });
  progress.end();
  if (folder) {
    copy_companions(files, {*folder, stored_tokenizer_folder(checkpoint)}, options.directory);
  } else {
    add_special_tokens(stored_tokenizer(files, checkpoint, run.tokenizer).get(), model.json);
    model.json["dtype"] = nullptr;  // config_text() puts in the type
    write_generation_config(files, options.directory, model.json);
    copy_companions(files, {stored_tokenizer_folder(checkpoint)}, options.directory);
  }
  // The last file: a folder without it is no model.
  write_synced(files, join_path(options.directory, kHuggingFaceConfigFile), config_text(model.json, type));
  files.sync_directory(options.directory);
}

RoundTrip round_trip_hugging_face(const FileSystem& files, const std::string& directory, Progress& progress) {
  const HuggingFaceModel model = read_hugging_face_model(files, directory);
  const HuggingFaceWeights weights(files, model, weight_map_of(model.family, model.config()));
  StoredParameter stored(weights);
  RoundTrip result;
  std::vector<std::string> others;
  const std::vector<TensorParts> tensors = tensors_of(weights.map());
  progress.begin({.title = "comparing", .unit = "tensors", .total = std::ssize(tensors)});
  for (const TensorParts& tensor : tensors) {
    std::vector<std::byte> back(static_cast<size_t>(bytes_of(tensor, stored)));
    assemble(tensor, stored, back);
    std::vector<std::byte> original(back.size());
    weights.folder().read_box(weights.name_in_folder(tensor.name), Box::whole(tensor.shape), original.data(),
                              tensor.shape.contiguous_strides());
    if (original != back) others.push_back(tensor.name);
    result.bytes += std::ssize(back);
    progress.update(++result.num_tensors, "");
  }
  progress.end();
  require<CheckpointError>(others.empty(),
                           "[hugging_face] {}: these tensors come back with other values: {}. Do not "
                           "train this model: its family's table of tensors is wrong.",
                           directory, joined(others, ", "));
  return result;
}

}  // namespace megatron
