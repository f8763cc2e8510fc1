#include "commands/evaluation.h"

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/safetensors.h"
#include "megatron/training/checkpoint/checkpoint_tokenizer.h"
#include "megatron/training/checkpoint/checkpointer.h"
#include "megatron/training/config/arguments_json.h"
#include "megatron/training/hugging_face/hugging_face_model.h"
#include "megatron/training/startup/device_choice.h"
#include "megatron/training/training_data.h"

namespace megatron {
namespace {

int num_threads_of(const EvaluationDevice& device) {
  return static_cast<int>(device.num_threads.value_or(std::max(1u, std::thread::hardware_concurrency())));
}

}  // namespace

Sequences read_token_ids(const FileSystem& files, const std::string& path) {
  require<DataError>(files.exists(path), "[token ids] {}: the file is missing. Correct the path.", path);
  const SafetensorsFile file(files.open_for_reading(path), path);
  require<DataError>(file.tensors().contains("input_ids"),
                     "[token ids] {} has no tensor input_ids. Store the ids under this name.", path);
  const SafetensorsFile::Tensor& tensor = file.tensor("input_ids");
  const bool is_wide = tensor.type == ElementType::kInt64;
  require<DataError>((is_wide || tensor.type == ElementType::kInt32) && tensor.shape.rank() == 2,
                     "[token ids] {}: input_ids is {} {}; int64 or int32 [sequences, tokens] is needed.", path,
                     tensor.type, tensor.shape);
  const std::vector<std::byte> bytes = file.read("input_ids");
  Sequences sequences(static_cast<size_t>(tensor.shape[0]));
  const std::byte* next = bytes.data();
  for (std::vector<TokenId>& sequence : sequences)
    for (int64_t i = 0; i < tensor.shape[1]; ++i, next += is_wide ? sizeof(int64_t) : sizeof(int32_t)) {
      int64_t wide = 0;
      int32_t narrow = 0;
      std::memcpy(is_wide ? static_cast<void*>(&wide) : &narrow, next, is_wide ? sizeof wide : sizeof narrow);
      const int64_t id = is_wide ? wide : narrow;
      require<DataError>(id == static_cast<TokenId>(id), "[token ids] {}: {} is no token id.", path, id);
      sequence.push_back(static_cast<TokenId>(id));
    }
  return sequences;
}

int64_t longest(const Sequences& sequences) {
  int64_t length = 0;
  for (const std::vector<TokenId>& sequence : sequences) length = std::max(length, std::ssize(sequence));
  return length;
}

void add_fields(FieldTable& table, EvaluationDevice& device) {
  table.add("num_threads", device.num_threads, "threads").by_default("one per core").at_least(1).at_most(1024);
  table.add("device", device.device, "device to run on")
      .by_default("a GPU if there is one, else the CPU")
      .one_of({"cpu", "cuda"});
}

PretrainConfig config_to_evaluate(FileSystem& files, const CheckpointConfig& checkpoint, const ModelFamily& family) {
  if (checkpoint.load_hf) {
    PretrainConfig config = read_hugging_face_model(files, *checkpoint.load_hf).config();
    config.family = family;
    take_hugging_face_tokenizer(files, *checkpoint.load_hf, config.tokenizer);
    return config;
  }
  PretrainConfig config = arguments_from_json(Checkpointer::stored_arguments(files, checkpoint), family);
  take_stored_files(files, Checkpointer::stored_path(files, checkpoint), config.tokenizer);
  return config;
}

EvaluationRank single_rank(const EvaluationDevice& device, DType dtype) {
  const int num_threads = num_threads_of(device);
  const DeviceChoice choice = choose_device({.device = device.device, .dtype = dtype, .num_threads = num_threads});
  return {.device = choice.kind, .cuda_device = choice.cuda_device, .num_threads = num_threads};
}

EvaluatedModel::EvaluatedModel(FileSystem& files, const CheckpointConfig& checkpoint, const TransformerConfig& network,
                               const ModelFamily& family, const EvaluationRank& rank)
    : network_(network),
      device_(rank.device, {.num_threads = rank.num_threads, .cuda_device = rank.cuda_device}),
      step_(device_),
      ctx_{.device = device_, .step = step_.get(), .key = {}},
      groups_(rank.groups),
      gpu_ranks_(rank.gpu_ranks),
      model_(
          family.make_model({.ctx = ctx_, .config = network_, .groups = groups_, .path = "", .replicates_tokens = true},
                            rank.stages.value_or(whole_layout(network_)), family.options)),
      evaluator_(ctx_, *model_, gpu_ranks_) {
  if (gpu_ranks_) gpu_ranks_->set_compute_stream(device_.cuda_stream().stream);
  Checkpointer::load_model(files, checkpoint, ctx_, *model_);
}

}  // namespace megatron
