#include "megatron/training/hugging_face/import_model.h"

#include <functional>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/checkpoint_directory.h"
#include "megatron/dist_checkpointing/checkpoint_files.h"
#include "megatron/dist_checkpointing/checkpoint_writer.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/training/checkpoint/checkpoint_objects.h"
#include "megatron/training/checkpoint/checkpoint_tokenizer.h"
#include "megatron/training/checkpoint/common_state.h"
#include "megatron/training/hugging_face/filled_source.h"
#include "megatron/training/hugging_face/hugging_face_model.h"
#include "megatron/training/training_data.h"
#include "megatron/training/vocab.h"

namespace megatron {
namespace {

using hugging_face::ParameterPieces;

constexpr int64_t kBytesOfMebibyte = 1 << 20;

/// One parameter of one layer.
std::unique_ptr<TensorSource> source_of(const HuggingFaceWeights& weights, const ParameterPieces& parameter,
                                        BufferPool& pool, std::function<void(int64_t)> on_bytes) {
  const ElementType type = *weights.type_of(parameter.key);
  const auto fill = [&weights, &parameter, type](std::span<std::byte> bytes) {
    const Box box = stored_box(parameter);
    weights.read_resized_tensor(parameter.key, box.offsets,
                                {bytes.data(), info(type).dtype.value(), box.sizes, box.sizes.contiguous_strides()});
  };
  return std::make_unique<FilledSource>(parameter.shape.num_elements() * size_of(type), pool, fill,
                                        std::move(on_bytes));
}

/// The tokenizer beside the weights, if it is one of those that this version reads.
std::unique_ptr<Tokenizer> take_tokenizer(const FileSystem& files, const std::string& directory, PretrainConfig& config,
                                          Progress& progress) {
  TokenizerConfig& flags = config.tokenizer;
  take_hugging_face_tokenizer(files, directory, flags);
  try {
    return tokenizer_of(flags);
  } catch (const Error& error) {
    progress.warning(fmt::format("the tokenizer of {} cannot be taken over, the checkpoint has token ids alone: {}",
                                 directory, error.what()));
    flags.tokenizer_type = "NullTokenizer";
    return tokenizer_of(flags);
  }
}

std::vector<ParameterPlace> places_of(const hugging_face::WeightMap& map) {
  std::vector<ParameterPlace> places;
  for (const ParameterPieces& parameter : map.parameters()) {
    places.push_back({.name = {parameter.key, parameter.layer}});
    if (parameter.leading.size() == (parameter.layer ? 1U : 0U)) continue;
    places.back().expert = parameter.leading.back().index;
    places.back().num_experts = parameter.leading.back().size;
  }
  return places;
}

}  // namespace

void import_hugging_face(FileSystem& files, const std::string& directory, const std::string& save, Progress& progress) {
  const HuggingFaceModel model = read_hugging_face_model(files, directory);
  PretrainConfig config = model.config();
  const HuggingFaceWeights weights(files, model, weight_map_of(model.family, config));
  CheckpointDirectory checkpoints(files, save);
  require<CheckpointError>(checkpoints.is_empty(),
                           "[hugging_face] --save {} holds checkpoints already, which an import does not replace. Give "
                           "a new folder.",
                           save);
  const std::unique_ptr<Tokenizer> tokenizer = take_tokenizer(files, directory, config, progress);
  set_vocab_size(config, tokenizer->vocab_size());

  create_durable_directories(files, save);
  checkpoints.begin(0);
  BufferPool pool;
  CheckpointWriter writer(files, checkpoints.staging_path(0), 0);
  writer.add_object(std::string(kCommonStateKey), make_initial_state(config));
  int64_t done = 0;
  const auto count = [&](int64_t bytes) { progress.update((done += bytes) / kBytesOfMebibyte, ""); };
  for (const ParameterPieces& parameter : weights.map().parameters())
    writer.add_tensor(parameter.key, *weights.type_of(parameter.key), stored_shape(parameter), stored_box(parameter),
                      source_of(weights, parameter, pool, count));
  add_extra_states(writer, places_of(weights.map()), config.transformer.num_layers);
  checkpoints.require_space(writer.estimated_bytes());
  save_tokenizer(files, checkpoints.staging_path(0), tokenizer_record(config.tokenizer.tokenizer_type, *tokenizer),
                 true);
  SmallFiles kept = read_small_files(files, directory, hugging_face_side_files());
  kept.emplace(kHuggingFaceConfigFile, model.json.dump(2) + "\n");  // where a Llama of Meta's has none
  keep_hugging_face_files(files, checkpoints.staging_path(0), kept);
  progress.begin({.title = "importing", .unit = "MiB", .total = writer.tensor_bytes() / kBytesOfMebibyte});
  const CheckpointMetadata stored = writer.write(1, WriteThreads::kReadAhead);
  progress.end();
  checkpoints.commit(0, stored, Integrity::kNone);
}

}  // namespace megatron
