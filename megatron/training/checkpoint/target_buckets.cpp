// The flat buckets of TargetRanks.
#include <fmt/core.h>

#include <algorithm>

#include "megatron/base/error.h"
#include "megatron/dist_checkpointing/bucketed_optimizer.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/distributed/data_parallel_plan.h"
#include "megatron/training/checkpoint/bucket_objects.h"
#include "megatron/training/checkpoint/target_ranks.h"

namespace megatron {
namespace {

/// Returns the settings on which Megatron's buckets depend. @param arguments  of the run
DistributedDataParallelConfig data_parallel_config_of(const pickle::Object& arguments) {
  const auto value = [&](std::string_view name) {
    const pickle::Object* found = arguments.find(name);
    return found && !found->is_none() ? found : nullptr;
  };
  const auto is_set = [&](std::string_view name) { return value(name) && value(name)->as_bool(); };
  DistributedDataParallelConfig config{.grad_reduce_in_fp32 = !(is_set("bf16") && is_set("grad_reduce_in_bf16")),
                                       .overlap_grad_reduce = is_set("overlap_grad_reduce"),
                                       .use_distributed_optimizer = true};
  if (value("ddp_bucket_size")) config.bucket_size = value("ddp_bucket_size")->as_int();
  if (value("ddp_num_buckets")) config.num_buckets = value("ddp_num_buckets")->as_int();
  config.pad_buckets_for_high_nccl_busbw = is_set("ddp_pad_buckets_for_high_nccl_busbw");
  return config;
}

}  // namespace

DataParallelPlan bucket_plan(const std::vector<std::vector<RankTensor>>& chunks, size_t chunk, int64_t stage,
                             const TargetLayout& layout, const TargetRanks::Model& model,
                             const pickle::Object& arguments) {
  const ModelDivision& division = layout.division;
  const bool separates_experts = layout.has_experts && division.divides_experts();
  int64_t of_other_chunks = 0;
  for (size_t other = 0; other < chunks.size(); ++other)
    for (const RankTensor& tensor : chunks[other]) of_other_chunks += other == chunk ? 0 : tensor.num_elements;
  std::vector<PlannedParameter> planned;
  for (const RankTensor& tensor : chunks[chunk])
    planned.push_back({.num_elements = tensor.num_elements,
                       .dtype = info(model.find(tensor.key)->second.type).dtype.value(),
                       .is_expert = separates_experts && tensor.expert.has_value(),
                       .is_shared_embedding = tensor.is_shared_embedding});
  const int64_t of_experts = division.expert * division.expert_tensor;
  const int64_t dp_cp = layout.data_parallel_size * layout.context_parallel_size;
  return DataParallelPlan::make(planned,
                                {.dp = layout.data_parallel_size,
                                 .dp_cp = dp_cp,
                                 .expt_dp = std::max<int64_t>(division.tensor * dp_cp / of_experts, 1),
                                 .pipeline_rank = stage,
                                 .chunk = static_cast<int64_t>(chunk),
                                 .elements_of_other_chunks = of_other_chunks},
                                data_parallel_config_of(arguments));
}

void TargetRanks::add_buckets(const pickle::Object& arguments) {
  for (const Holders& own : holders()) add_group(own, arguments);
}

void TargetRanks::add_group(const Holders& own, const pickle::Object& arguments) {
  const ModelDivision& division = layout_.division;
  const int64_t of_experts = division.expert * division.expert_tensor;
  Group& group = groups_.emplace_back();
  group.optimizer = own.of_experts ? 1 : 0;
  group.rank = own.ranks.front();
  const int64_t first = group.rank % layout_.ranks_of_stage();  // of the stage
  group.key = bucketed_keys::group(separates_experts() ? static_cast<int>(group.optimizer) : -1,
                                   own.stage * (own.of_experts ? of_experts : division.tensor) + first);
  std::vector<std::vector<RankTensor>> chunks;
  for (int64_t chunk = 0; chunk < division.chunks; ++chunk)
    chunks.push_back(
        tensors_of_rank(model_, division, layout_.part(own.stage, chunk), own.rank, RankContents::kParameters));
  std::vector<std::pair<std::string, std::vector<int64_t>>> padded, unpadded;
  size_t number = 0;  // of the buffer
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk) {
    const DataParallelPlan plan = bucket_plan(chunks, chunk, own.stage, layout_, model_, arguments);
    for (const BufferPlan& buffer : plan.buffers) {
      if (buffer.is_expert != own.of_experts) continue;
      add_buffer(own, group.key, number++, buffer, chunks[chunk]);
      padded.emplace_back(bucket_dtypes(buffer), std::vector<int64_t>());
      unpadded.emplace_back(bucket_dtypes(buffer), std::vector<int64_t>());
      for (const BufferLayout::Bucket& bucket : buffer.layout.buckets) {
        padded.back().second.push_back(bucket.range.size());
        unpadded.back().second.push_back(bucket.num_unpadded);
      }
    }
  }
  CheckpointWriter& first_writer = writer(group.rank);
  first_writer.add_object(bucketed_keys::object(group.key, "per_bucket_numel"), bucket_sizes_object(padded));
  first_writer.add_object(bucketed_keys::object(group.key, "per_bucket_numel_unpadded"), bucket_sizes_object(unpadded));
}

/// Gaps between parameters are zero: Megatron does not use them, but its loader wants every element.
void TargetRanks::add_buffer(const Holders& own, const std::string& group, size_t number, const BufferPlan& buffer,
                             const std::vector<RankTensor>& tensors) {
  const BufferLayout& layout = buffer.layout;
  for (size_t bucket = 0; bucket < layout.buckets.size(); ++bucket) {
    const BufferLayout::Bucket& one = layout.buckets[bucket];
    const std::string prefix = bucketed_keys::bucket(group, number, bucket_dtypes(buffer), bucket);
    std::map<std::string, GlobalTensor> wholes;  // by the name of the state
    int64_t end = 0;
    const auto fill_to = [&](int64_t begin) {
      for (const auto& [name, whole] : wholes)
        if (begin > end)
          writer(own.ranks.front())
              .add_tensor(
                  prefix + name, whole.type, whole.shape, Box{{end}, {begin - end}},
                  make_owned_source(std::vector<std::byte>(static_cast<size_t>((begin - end) * size_of(whole.type)))));
    };
    for (const size_t entry : one.entries) {
      const RankTensor& tensor = tensors[buffer.parameters[entry]];
      const ElementRange& range = layout.slots[entry].range;
      const int64_t begin = range.begin - one.range.begin;
      const auto states = states_.find(tensor.key);
      require<NotSupported>(states != states_.end(),
                            "[checkpoint] the optimizer has no state of {}, which dp_reshardable buckets need. Leave "
                            "--dist-ckpt-optim-form out.",
                            tensor.key);
      for (const std::string& name : states->second) {
        const std::string key = optimizer_state_key(name, tensor.key);
        const ElementType type = reader_.whole_tensors().tensors.find(key)->second.type;
        const GlobalTensor& whole = wholes.emplace(name, GlobalTensor{type, {one.num_unpadded}, {}}).first->second;
        for (const RankTensor::Part& part : tensor.parts)
          add(own, prefix + name, whole, Box{{begin + part.first}, {part.whole.sizes.num_elements()}}, key, part.whole);
      }
      fill_to(begin);
      end = range.end - one.range.begin;
    }
    fill_to(one.num_unpadded);
  }
}

}  // namespace megatron
