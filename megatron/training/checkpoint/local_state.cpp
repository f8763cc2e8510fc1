#include "megatron/training/checkpoint/local_state.h"

#include <fmt/core.h>

#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/training/checkpoint/checkpoint_share.h"
#include "megatron/training/checkpoint/common_state.h"
#include "megatron/training/checkpoint/device_tensor_source.h"
#include "megatron/training/checkpoint/save_folder.h"

namespace megatron {
namespace {

CheckpointChunk whole_chunk(const Shape& flat) { return {.offsets = {0}, .sizes = flat, .strides = {1}}; }

int64_t virtual_size(const ParallelConfig& parallel) {
  return parallel.num_virtual_stages_per_pipeline_rank.value_or(
      parallel.num_layers_per_virtual_pipeline_stage.value_or(0));
}

}  // namespace

LocalState::LocalState(Trainer& trainer) : trainer_(trainer) {
  const bool shares = trainer.config().checkpoint.non_persistent_local_ckpt_algo == "fully_parallel";
  Optimizer& optimizer = trainer.optimizer();
  weights_.is_shared = shares;
  optimizer_.is_shared = shares && !optimizer.config().use_distributed_optimizer;
  const auto add = [](Tensors& tensors, std::string_view kind, const Parameter& parameter, int64_t num_elements,
                      OptimizerTensor value) {
    if (num_elements == 0) return;
    std::string key = fmt::format("{}.{}.{}", kind, tensors.all.size(), parameter.name());
    tensors.all.push_back({&parameter, std::move(key), Shape{num_elements}, std::move(value)});
  };
  for (const Parameter* parameter : trainer.model().parameters())
    add(weights_, "weight", *parameter, parameter->shape().num_elements(), stored_as_is("", parameter->value()));
  for (const OptimizerState& state : optimizer.states())
    for (OptimizerTensor& value : optimizer_tensors(trainer.context(), optimizer, state)) {
      const std::string_view name = value.name;
      add(optimizer_, name, *state.parameter, state.end - state.begin, std::move(value));
    }
}

void LocalState::add_to(CheckpointWriter& writer) const {
  writer.add_object(std::string(kCommonStateKey), make_common_state(trainer_, true));
  add(writer, weights_);
  add(writer, optimizer_);
}

void LocalState::add(CheckpointWriter& writer, const Tensors& tensors) const {
  ReplicaDealer dealer(trainer_.groups(), true);
  for (const LocalTensor& tensor : tensors.all) {
    const DType dtype = tensor.value.dtype;
    if (tensors.is_shared && !dealer.takes(*tensor.parameter, tensor.shape.num_elements() * size_of(dtype))) continue;
    writer.add_tensor(tensor.key, element_type_of(dtype), tensor.shape, Box::whole(tensor.shape),
                      make_device_source(trainer_.context(), tensor.value.tensor, dtype, whole_chunk(tensor.shape)));
  }
}

void LocalState::read_from(const CheckpointReader& reader) const {
  Optimizer& optimizer = trainer_.optimizer();
  read_tensors(reader, weights_);
  optimizer.reload_main_params(trainer_.context());  // those that are the weights
  read_tensors(reader, optimizer_);
  optimizer.copy_main_to_model_params(trainer_.context());
}

void LocalState::read_tensors(const CheckpointReader& reader, const Tensors& tensors) const {
  LoadRequests requests;
  requests.reserve(tensors.all.size());
  for (const LocalTensor& tensor : tensors.all) {
    CheckpointPlacement placement{
        .key = tensor.key, .global_shape = tensor.shape, .chunks = {whole_chunk(tensor.shape)}};
    requests.push_back(
        {tensor.parameter, tensor.key, std::move(placement), tensor.value.tensor, tensor.value.put_back});
  }
  if (tensors.is_shared)
    read_shared(reader, requests, trainer_.context(), trainer_.groups());
  else
    read(reader, requests, trainer_.context());
}

std::string LocalState::layout(const std::string& folder) const {
  const ParallelConfig& parallel = trainer_.config().parallel;
  std::string text = fmt::format("checkpoints in {}\n", resolved_path(folder));
  const auto add = [&](std::string_view name, const auto& value) { text += fmt::format("{} {}\n", name, value); };
  add("ranks", parallel.world_size);
  add("rank", trainer_.groups().world.rank());
  add("--tensor-model-parallel-size", parallel.tensor_model_parallel_size);
  add("--pipeline-model-parallel-size", parallel.pipeline_model_parallel_size);
  add("virtual stages", virtual_size(parallel));
  add("--context-parallel-size", parallel.context_parallel_size);
  add("--expert-model-parallel-size", parallel.expert_model_parallel_size);
  add("--expert-tensor-parallel-size",
      parallel.expert_tensor_parallel_size.value_or(parallel.tensor_model_parallel_size));
  add("--num-distributed-optimizer-instances", parallel.num_distributed_optimizer_instances);
  add("--non-persistent-local-ckpt-algo", trainer_.config().checkpoint.non_persistent_local_ckpt_algo);
  for (const Tensors* tensors : {&weights_, &optimizer_})
    for (const LocalTensor& tensor : tensors->all)
      add(tensor.key, fmt::format("{} {}", tensor.value.dtype, tensor.shape));
  return text;
}

}  // namespace megatron
