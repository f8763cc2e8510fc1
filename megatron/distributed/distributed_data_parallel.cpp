#include "megatron/distributed/distributed_data_parallel.h"

#include <algorithm>
#include <exception>
#include <map>
#include <set>
#include <utility>

#include "megatron/distributed/replica_groups.h"

namespace megatron {
namespace {

int64_t num_elements_of(const std::vector<Parameter*>& parameters) {
  int64_t sum = 0;
  for (const Parameter* parameter : parameters) sum += parameter->shape().num_elements();
  return sum;
}

}  // namespace

/// A group and the place of its first parameter among all of the rank: the last that backward completes.
struct DistributedDataParallel::OrderedGroup {
  size_t first_parameter = 0;
  std::vector<BucketGroup::Bucket> buckets;
};

DistributedDataParallel::DistributedDataParallel(const Context& ctx, const std::vector<std::vector<Parameter*>>& chunks,
                                                 const ProcessGroupCollection& groups,
                                                 const DistributedDataParallelConfig& config)
    : ctx_(ctx), groups_(groups), config_(config) {
  // Buffers take the place of all weights that are not set yet, where else they would leave a gap.
  if (config_.use_distributed_optimizer)
    for (const std::vector<Parameter*>& chunk : chunks)
      for (Parameter* parameter : chunk)
        if (parameter->is_trainable()) parameter->release_unset();
  std::vector<OrderedGroup> ordered;
  for (size_t chunk = 0; chunk < chunks.size(); ++chunk) add_chunk(chunks, chunk, ordered);
  const std::set<Parameter*> different(parameters_.begin(), parameters_.end());
  require<ConfigError>(different.size() == parameters_.size(),
                       "[DistributedDataParallel] {} of {} parameters are listed twice. List a parameter in one chunk.",
                       parameters_.size() - different.size(), parameters_.size());
  std::ranges::stable_sort(ordered, std::greater<>(), &OrderedGroup::first_parameter);
  for (size_t number = 0; number < ordered.size(); ++number)
    bucket_groups_.push_back(make_group(std::move(ordered[number].buckets), number));
  for (size_t number = 0; number < bucket_groups_.size(); ++number)
    for (const BucketGroup::Bucket& bucket : bucket_groups_[number].buckets())
      for (size_t entry : bucket.buffer->layout().buckets[bucket.index].entries)
        connect(*bucket.buffer->parameters()[entry], number);
}

void DistributedDataParallel::connect(Parameter& parameter, size_t group) {
  parameter.on_ready = [this, group](Parameter&) { mark_ready(group); };
  if (config_.use_distributed_optimizer)
    parameter.before_read = [this, group] {
      if (is_gather_due_) gather_params();
      bucket_groups_[group].finish_param_sync();
    };
}

DistributedDataParallel::~DistributedDataParallel() {
  // Ranks that read their weights wait for this one's part, also of a gather that was left to a next step. Where a rank
  // has failed, nobody does.
  if (std::uncaught_exceptions() == 0) {
    try {
      finish_param_sync();
    } catch (const Error&) {  // of this rank's GPU too: there is nobody here to tell
    }
  }
  for (Parameter* parameter : parameters_) {
    parameter->on_ready = nullptr;
    parameter->before_read = nullptr;
  }
}

void DistributedDataParallel::add_chunk(const std::vector<std::vector<Parameter*>>& chunks, size_t chunk,
                                        std::vector<OrderedGroup>& ordered) {
  const std::vector<Parameter*>& parameters = chunks[chunk];
  std::vector<PlannedParameter> planned;
  for (Parameter* parameter : parameters) {
    require_own_place(*parameter, groups_);
    planned.push_back({.num_elements = parameter->shape().num_elements(),
                       .dtype = parameter->dtype(),
                       .is_trainable = parameter->is_trainable(),
                       .is_expert = parameter->options().shard.grid == ShardGrid::kExpert,
                       .is_shared_embedding = parameter->options().tied.num_holders > 1});
    if (parameter->is_trainable()) parameters_.push_back(parameter);
  }
  DataParallelSizes sizes{.dp = groups_.dp.size(),
                          .dp_cp = replicas_of(ShardGrid::kDense, groups_).all.size(),
                          .expt_dp = replicas_of(ShardGrid::kExpert, groups_).all.size(),
                          .pipeline_rank = groups_.pp.rank(),
                          .chunk = static_cast<int64_t>(chunk)};
  size_t first_of_chunk = 0;
  for (size_t other = 0; other < chunks.size(); ++other) {
    if (other != chunk) sizes.elements_of_other_chunks += num_elements_of(chunks[other]);
    if (other < chunk) first_of_chunk += chunks[other].size();
  }
  DataParallelPlan plan = DataParallelPlan::make(planned, sizes, config_);
  const size_t first_buffer = buffers_.size();
  for (BufferPlan& buffer : plan.buffers)
    buffers_.push_back(
        std::make_unique<ParamAndGradBuffer>(ctx_, std::move(buffer), parameters, config_.use_distributed_optimizer));
  for (const auto& group : plan.groups) {
    OrderedGroup& added = ordered.emplace_back();
    added.first_parameter = first_of_chunk + parameters.size();
    for (const DataParallelPlan::Bucket& bucket : group) {
      ParamAndGradBuffer* buffer = buffers_[first_buffer + bucket.buffer].get();
      added.buckets.push_back({buffer, bucket.bucket});
      for (size_t entry : buffer->layout().buckets[bucket.bucket].entries)
        added.first_parameter = std::min(added.first_parameter, first_of_chunk + buffer->plan().parameters[entry]);
    }
  }
}

BucketGroup DistributedDataParallel::make_group(std::vector<BucketGroup::Bucket> buckets, size_t number) const {
  const ReplicaGroups replicas = replicas_of(*buckets.at(0).buffer->parameters().at(0), groups_);
  BucketGroup::Options options{.replicas = replicas.of_instance,
                               .instances = replicas.instances,
                               .shards = config_.use_distributed_optimizer,
                               .average = config_.average_in_collective,
                               .name = fmt::format("bucket {}", number)};
  const int64_t expected = buckets.at(0).buffer->layout().data_parallel_size;
  require<ConfigError>(
      options.replicas.size() == expected && options.instances.size() == config_.num_distributed_optimizer_instances,
      "[DistributedDataParallel] the groups have {} replicas in {} optimizer instances, the config "
      "asks for {} in {}. Make the groups with the same --num-distributed-optimizer-instances.",
      options.replicas.size(), options.instances.size(), expected, config_.num_distributed_optimizer_instances);
  return BucketGroup(std::move(buckets), std::move(options));
}

void DistributedDataParallel::begin_step() {
  num_started_ = 0;
  is_in_step_ = true;
  for (BucketGroup& group : bucket_groups_) group.begin_step();
  for (const auto& buffer : buffers_) buffer->begin_step();
  if (config_.gather_params_in_step) gather_params();
}

void DistributedDataParallel::mark_ready(size_t group) {
  bucket_groups_[group].mark_ready();
  if (config_.overlap_grad_reduce) start_ready_groups();
}

void DistributedDataParallel::start_ready_groups() {
  while (num_started_ < bucket_groups_.size() && bucket_groups_[num_started_].is_ready())
    bucket_groups_[num_started_++].start_grad_sync(ctx_);
}

void DistributedDataParallel::finish_grad_sync() {
  require(std::exchange(is_in_step_, false),
          "[DistributedDataParallel] finish_grad_sync without a begin_step before it: gradients would be summed over "
          "replicas twice. A step is begin_step, forward and backward, finish_grad_sync.");
  for (const auto& buffer : buffers_) buffer->finish_step(ctx_);
  start_ready_groups();
  require<InternalError>(
      num_started_ == bucket_groups_.size(),
      "[DistributedDataParallel] at the end of the step {} of {} bucket groups are not ready. What is "
      "set as on_ready of a parameter must call what was there before.",
      bucket_groups_.size() - num_started_, bucket_groups_.size());
  for (BucketGroup& group : bucket_groups_) group.start_instance_sync();
  for (BucketGroup& group : bucket_groups_) group.finish_grad_sync();
  if (config_.gather_params_in_step) finish_param_sync();  // also of weights that nobody has read
}

void DistributedDataParallel::start_param_sync() {
  if (config_.gather_params_in_step)
    is_gather_due_ = true;
  else
    gather_params();
}

void DistributedDataParallel::gather_params() {
  is_gather_due_ = false;
  for (auto group = bucket_groups_.rbegin(); group != bucket_groups_.rend(); ++group) group->start_param_sync();
}

void DistributedDataParallel::finish_param_sync() {
  if (is_gather_due_) gather_params();
  for (auto group = bucket_groups_.rbegin(); group != bucket_groups_.rend(); ++group) group->finish_param_sync();
}

void DistributedDataParallel::settle_param_sync() {
  is_gather_due_ = false;
  finish_param_sync();
}

std::vector<FlatRange> DistributedDataParallel::owned_ranges() const {
  std::map<const Parameter*, FlatRange> owned;
  for (const BucketGroup& group : bucket_groups_)
    for (const BucketGroup::Bucket& bucket : group.buckets())
      for (const FlatRange& range : group.owned_ranges(bucket)) owned[range.parameter] = range;
  std::vector<FlatRange> ranges;
  for (const Parameter* parameter : parameters_)
    if (const auto found = owned.find(parameter); found != owned.end()) ranges.push_back(found->second);
  return ranges;
}

}  // namespace megatron
