#include "megatron/training/checkpoint/bucketed_share.h"

#include <fmt/core.h>

#include <algorithm>

#include "megatron/dist_checkpointing/bucketed_optimizer.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/dist_checkpointing/module_name.h"
#include "megatron/distributed/data_parallel_plan.h"
#include "megatron/training/checkpoint/bucket_objects.h"
#include "megatron/training/checkpoint/common_state.h"
#include "megatron/training/config/layouts.h"

namespace megatron {
ModelDivision division_of(const Trainer& trainer) {
  const ProcessGroupCollection& groups = trainer.groups();
  const PretrainConfig& config = trainer.config();
  ModelDivision division{.tensor = groups.tp.size(), .pipeline = groups.pp.size()};
  division.chunks = config.parallel.virtual_pipeline_model_parallel_size.value_or(1);
  const bool has_experts = config.transformer.moe.has_value();
  division.expert = has_experts ? groups.ep.size() : 1;
  division.expert_tensor = has_experts ? groups.expt_tp.size() : division.tensor;
  division.has_local_layers = config.no_effect.transformer_impl == "local";
  division.has_grouped_experts = config.experts.grouped_gemm;
  division.ties_embeddings = config.transformer.share_embeddings_and_output_weights;
  return division;
}

StagePart stage_part_of(const std::vector<Parameter*>& parameters) {
  StagePart part{.has_embedding = false, .has_head = false};
  for (const Parameter* parameter : parameters) {
    const std::string& key = parameter->stored_key();
    part.has_embedding |= key.starts_with("embedding.") && parameter->options().tied.is_first();
    part.has_head |= key.starts_with("decoder.final_layernorm.");
    const ModuleName name = parse_module_name(parameter->name());
    if (name.prefix != "decoder.layers.") continue;
    if (part.num_layers == 0) part.first_layer = *name.layer;
    part.num_layers = std::max(part.num_layers, *name.layer + 1 - part.first_layer);
  }
  return part;
}

BucketedShare::BucketedShare(CheckpointShare& share, Trainer& trainer)
    : share_(share), division_(division_of(trainer)) {
  const ProcessGroupCollection& groups = trainer.groups();
  const bool is_chained = division_.divides_experts();
  optimizers_.push_back(
      {.group = bucketed_keys::group(is_chained ? 0 : -1, groups.pp.rank() * groups.tp.size() + groups.tp.rank()),
       .is_first = groups.dp_cp.rank() == 0,
       .buffers = {}});
  if (is_chained) {
    const int64_t of_stage = groups.ep.rank() * groups.expt_tp.size() + groups.expt_tp.rank();
    const int64_t ranks_of_stage = groups.ep.size() * groups.expt_tp.size();
    optimizers_.push_back({.group = bucketed_keys::group(1, groups.pp.rank() * ranks_of_stage + of_stage),
                           .is_first = groups.expt_dp.rank() == 0,
                           .buffers = {}});
  }
  const std::vector<std::vector<Parameter*>> chunks = trainer.model().stage_parameters();
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk) add_chunk(trainer, chunks[chunk], static_cast<int64_t>(chunk));
}

void BucketedShare::add_chunk(Trainer& trainer, const std::vector<Parameter*>& parameters, int64_t chunk) {
  const ProcessGroupCollection& groups = trainer.groups();
  std::map<std::string, GlobalTensor, std::less<>> model;
  const StagePart part = stage_part_of(parameters);
  for (const Parameter* parameter : parameters) {
    const CheckpointPlacement placement = placement_of(*parameter, trainer.model().config().num_layers);
    model[placement.key] = {element_type_of(parameter->dtype()), placement.global_shape, {}};
  }
  const StageRank rank{.tensor = groups.tp.rank(),
                       .expert = division_.expert > 1 ? groups.ep.rank() : 0,
                       .expert_tensor = division_.divides_experts() ? groups.expt_tp.rank() : groups.tp.rank()};
  std::vector<Member> members;
  int64_t num_elements = 0, expected = 0, of_all_chunks = 0;
  for (RankTensor& tensor : tensors_of_rank(model, division_, part, rank, RankContents::kParameters)) {
    members.push_back(member_of(parameters, std::move(tensor)));
    num_elements += members.back().range.size();
  }
  for (const Parameter* parameter : parameters)
    if (parameter->is_trainable()) expected += parameter->shape().num_elements();
  for (const Parameter* parameter : trainer.model().parameters()) of_all_chunks += parameter->shape().num_elements();
  require<NotSupported>(num_elements == expected,
                        "[checkpoint] --dist-ckpt-optim-form dp_reshardable: {} of {} elements of this rank have a "
                        "place in Megatron's buckets. Leave the flag out.",
                        num_elements, expected);
  std::vector<PlannedParameter> planned;
  planned.reserve(members.size());
  for (const Member& member : members)
    planned.push_back({.num_elements = member.range.size(),
                       .dtype = member.parameter->dtype(),
                       .is_expert = division_.divides_experts() && member.tensor.expert.has_value(),
                       .is_shared_embedding = member.tensor.is_shared_embedding});
  const DataParallelPlan plan = DataParallelPlan::make(planned,
                                                       {.dp = groups.dp.size(),
                                                        .dp_cp = groups.dp_cp.size(),
                                                        .expt_dp = groups.expt_dp.size(),
                                                        .pipeline_rank = groups.pp.rank(),
                                                        .chunk = chunk,
                                                        .elements_of_other_chunks = of_all_chunks - num_elements},
                                                       data_parallel_config_of(trainer.config()));
  for (const BufferPlan& buffer : plan.buffers) {
    const size_t number = buffer.is_expert ? 1 : 0;
    OneOptimizer& optimizer = optimizers_[number];
    for (size_t i = 0; i < buffer.parameters.size(); ++i) {
      const BufferLayout::Slot& slot = buffer.layout.slots[i];
      const Member& member = members[buffer.parameters[i]];
      pieces_[member.parameter].push_back({.optimizer = number,
                                           .buffer = optimizer.buffers.size(),
                                           .bucket = slot.bucket,
                                           .begin = slot.range.begin - buffer.layout.buckets[slot.bucket].range.begin,
                                           .in_parameter = member.range});
    }
    optimizer.buffers.push_back({bucket_dtypes(buffer), buffer.layout});
  }
}

BucketedShare::Member BucketedShare::member_of(const std::vector<Parameter*>& parameters, RankTensor tensor) const {
  for (const Parameter* parameter : parameters) {
    if (parameter->stored_key() != tensor.key) continue;
    const ModuleName name = parse_module_name(parameter->name());
    if (name.prefix == "decoder.layers." && name.layer != tensor.layer) continue;
    ElementRange range{0, parameter->shape().num_elements()};
    if (tensor.expert) {
      const Box box = parameter->boxes().front().global;  // its first axis is that of the experts
      const int64_t own = *tensor.expert - box.offsets[0], size = range.size() / box.sizes[0];
      if (own < 0 || own >= box.sizes[0]) continue;
      range = {own * size, (own + 1) * size};
    }
    require<NotSupported>(range.size() == tensor.num_elements,
                          "[checkpoint] --dist-ckpt-optim-form dp_reshardable: this rank has {} elements of {}, where "
                          "one of Megatron has {}. Leave the flag out.",
                          range.size(), parameter->name(), tensor.num_elements);
    return {parameter, std::move(tensor), range};
  }
  throw NotSupported(
      fmt::format("[checkpoint] --dist-ckpt-optim-form dp_reshardable: this rank has no {}, of which one "
                  "of Megatron has a part. Leave the flag out.",
                  tensor.key));
}

void BucketedShare::add(const OptimizerState& state, std::string_view name, const OptimizerTensor& value) {
  states_.emplace(name, value.dtype);
  for (const Piece& piece : pieces_.at(state.parameter)) {
    const ElementRange own = intersection(piece.in_parameter, ElementRange{state.begin, state.end});
    if (own.size() == 0) continue;
    const OneOptimizer& optimizer = optimizers_[piece.optimizer];
    const Buffer& buffer = optimizer.buffers[piece.buffer];
    const CheckpointChunk chunk{.offsets = {piece.begin + own.begin - piece.in_parameter.begin},
                                .sizes = {own.size()},
                                .strides = {1},
                                .first = own.begin - state.begin};
    const std::string key = bucketed_keys::bucket(optimizer.group, piece.buffer, buffer.dtypes, piece.bucket);
    share_.add_sharded({.key = key,
                        .global_shape = {buffer.layout.buckets[piece.bucket].num_unpadded},
                        .is_padded = false,
                        .chunks = {chunk}},
                       key + std::string(name), value);
  }
}

void BucketedShare::finish(Trainer& trainer) {
  for (const OneOptimizer& optimizer : optimizers_) {
    if (!optimizer.is_first) continue;
    add_gaps(optimizer);
    add_objects(optimizer, trainer);
  }
}

/// Fills them with zeros: Megatron does not use them, but its loader wants every element.
void BucketedShare::add_gaps(const OneOptimizer& optimizer) const {
  for (size_t number = 0; number < optimizer.buffers.size(); ++number) {
    const Buffer& buffer = optimizer.buffers[number];
    for (size_t bucket = 0; bucket < buffer.layout.buckets.size(); ++bucket) {
      const BufferLayout::Bucket& one = buffer.layout.buckets[bucket];
      const std::string key = bucketed_keys::bucket(optimizer.group, number, buffer.dtypes, bucket);
      int64_t end = 0;
      const auto fill_to = [&](int64_t begin) {
        for (const auto& [name, dtype] : states_)
          if (begin > end)
            share_.writer().add_tensor(
                key + name, element_type_of(dtype), {one.num_unpadded}, Box{{end}, {begin - end}},
                make_owned_source(std::vector<std::byte>(static_cast<size_t>((begin - end) * size_of(dtype)))));
      };
      for (const size_t entry : one.entries) {
        const ElementRange& range = buffer.layout.slots[entry].range;
        fill_to(range.begin - one.range.begin);
        end = range.end - one.range.begin;
      }
      fill_to(one.num_unpadded);
    }
  }
}

void BucketedShare::add_objects(const OneOptimizer& optimizer, Trainer& trainer) const {
  std::vector<std::pair<std::string, std::vector<int64_t>>> padded, unpadded;
  for (const Buffer& buffer : optimizer.buffers) {
    padded.emplace_back(buffer.dtypes, std::vector<int64_t>());
    unpadded.emplace_back(buffer.dtypes, std::vector<int64_t>());
    for (const BufferLayout::Bucket& bucket : buffer.layout.buckets) {
      padded.back().second.push_back(bucket.range.size());
      unpadded.back().second.push_back(bucket.num_unpadded);
    }
  }
  const auto add = [&](std::string_view name, TorchObject object) {
    share_.writer().add_object(bucketed_keys::object(optimizer.group, name), std::move(object));
  };
  add("per_bucket_numel", bucket_sizes_object(padded));
  add("per_bucket_numel_unpadded", bucket_sizes_object(unpadded));
  add(common_state::kOptimizer, make_inner_optimizer_object(trainer, &optimizer != &optimizers_.front()));
  if (trainer.optimizer().scaler()) add(common_state::kGradScaler, make_scaler_object(trainer));
}

}  // namespace megatron
