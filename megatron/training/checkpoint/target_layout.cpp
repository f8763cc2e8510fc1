#include "megatron/training/checkpoint/target_layout.h"

#include <algorithm>
#include <numeric>

#include "megatron/base/error.h"

namespace megatron {

StagePart TargetLayout::part(int64_t stage, int64_t chunk) const {
  const int64_t num_parts = division.pipeline * division.chunks, number = chunk * division.pipeline + stage;
  if (!parts.empty()) return parts[static_cast<size_t>(number)];
  const int64_t layers = num_layers / num_parts;
  return {.first_layer = number * layers,
          .num_layers = layers,
          .has_embedding = number == 0,
          .has_head = number + 1 == num_parts};
}

StageRank TargetLayout::rank_of_stage(int64_t rank) const {
  return {.tensor = rank % division.tensor,
          .expert = rank / division.expert_tensor % division.expert,
          .expert_tensor = rank % division.expert_tensor};
}

TargetLayout target_layout(const LayoutRequest& request, const pickle::Object& arguments,
                           const std::map<std::string, GlobalTensor, std::less<>>& model) {
  TargetLayout layout{.division = ModelDivision::of(arguments),
                      .num_layers = std::max<int64_t>(num_layers_of(model), 1)};
  layout.has_experts = std::ranges::any_of(
      model, [](const auto& entry) { return entry.first.find(".experts.experts.") != std::string::npos; });
  ModelDivision& division = layout.division;
  const int64_t stored_tensor = division.tensor;
  division.tensor = request.tensor_parallel_size.value_or(division.tensor);
  division.pipeline = request.pipeline_parallel_size.value_or(division.pipeline);
  division.chunks = request.virtual_pipeline_parallel_size.value_or(1);
  division.expert = request.expert_parallel_size.value_or(division.expert);
  if (division.expert_tensor == stored_tensor || !layout.has_experts) division.expert_tensor = division.tensor;
  division.expert_tensor = request.expert_tensor_parallel_size.value_or(division.expert_tensor);
  const int64_t asked = std::max(request.expert_parallel_size.value_or(1),
                                 request.expert_tensor_parallel_size.value_or(division.tensor) / division.tensor);
  require<CheckpointError>(layout.has_experts || asked <= 1,
                           "[checkpoint] the model has no experts. Leave out --target-expert-parallel-size and "
                           "--target-expert-tensor-parallel-size.");
  if (!layout.has_experts) {
    division.expert = 1;
    division.expert_tensor = division.tensor;
  }
  const int64_t num_parts = division.pipeline * division.chunks;
  require<CheckpointError>(
      layout.num_layers % num_parts == 0,
      "[checkpoint] {} layers cannot be divided evenly into {} parts (pipeline stages {}, chunks of "
      "each {}). Give another --target-pipeline-parallel-size.",
      layout.num_layers, num_parts, division.pipeline, division.chunks);
  require<CheckpointError>(
      division.chunks == 1 || division.pipeline > 1,
      "[checkpoint] --target-virtual-pipeline-parallel-size {} needs several pipeline stages. Give "
      "--target-pipeline-parallel-size.",
      division.chunks);
  const int64_t of_experts = layout.has_experts ? division.expert * division.expert_tensor : 1;
  const int64_t least = of_experts / std::gcd(of_experts, division.tensor);
  layout.data_parallel_size = request.data_parallel_size.value_or(least);
  require<CheckpointError>(
      layout.data_parallel_size % least == 0,
      "[checkpoint] {} ranks of a pipeline stage (tensor-parallel {} times data-parallel {}) cannot "
      "be divided into expert-parallel {} times expert-tensor-parallel {}. Give a multiple of "
      "--target-data-parallel-size {}.",
      layout.ranks_of_stage(), division.tensor, layout.data_parallel_size, division.expert, division.expert_tensor,
      least);
  return layout;
}

void set_argument(pickle::Object& arguments, std::string_view name, pickle::Object& value) {
  for (pickle::Entry& entry : arguments.mutable_instance().state->mutable_entries())
    if (entry.key->as_string() == name) entry.value = &value;
}

void set_layout(pickle::Graph& graph, pickle::Object& arguments, const TargetLayout& layout) {
  const ModelDivision& division = layout.division;
  const auto set = [&](std::string_view name, int64_t value) { set_argument(arguments, name, graph.integer(value)); };
  for (const auto& [name, size] : {std::pair{"tensor_model_parallel_size", division.tensor},
                                   {"pipeline_model_parallel_size", division.pipeline},
                                   {"expert_model_parallel_size", division.expert},
                                   {"expert_tensor_parallel_size", division.expert_tensor}}) {
    if (!arguments.find(name) && size > 1) graph.set(arguments, name, graph.integer(size));
    set(name, size);
  }
  set("data_parallel_size", layout.data_parallel_size);
  set("context_parallel_size", 1);
  set("world_size", layout.world_size());
  set("rank", 0);
  set("local_rank", 0);
  set("num_virtual_stages_per_pipeline_rank", division.chunks);
  set("virtual_pipeline_model_parallel_size", division.chunks);
  // These divide the layers in another way than evenly.
  for (const char* name : {"pipeline_model_parallel_layout", "decoder_first_pipeline_num_layers",
                           "decoder_last_pipeline_num_layers", "num_layers_per_virtual_pipeline_stage"})
    set_argument(arguments, name, graph.none());
  if (division.chunks == 1)
    for (const char* name : {"num_virtual_stages_per_pipeline_rank", "virtual_pipeline_model_parallel_size"})
      set_argument(arguments, name, graph.none());
  for (const char* name : {"account_for_embedding_in_pipeline_split", "account_for_loss_in_pipeline_split"})
    set_argument(arguments, name, graph.boolean(false));
}

}  // namespace megatron
