#include "megatron/distributed/bucket_group.h"

#include <utility>

#include "megatron/kernels/elementwise.h"

namespace megatron {
namespace {

Tensor whole_of(const Tensor& buffer, const ElementRange& range) { return buffer.slice(0, range.begin, range.size()); }

void wait_for(std::vector<Work>& works) {
  for (Work& work : works) work.wait();
  works.clear();
}

}  // namespace

BucketGroup::BucketGroup(std::vector<Bucket> buckets, Options options)
    : buckets_(std::move(buckets)), options_(std::move(options)) {
  for (const Bucket& bucket : buckets_) num_parameters_ += bucket.buffer->layout().buckets[bucket.index].entries.size();
}

std::vector<FlatRange> BucketGroup::owned_ranges(const Bucket& bucket) const {
  const BufferLayout& layout = bucket.buffer->layout();
  std::vector<FlatRange> ranges;
  if (options_.shards)
    for (const BufferLayout::Piece& piece : layout.pieces(bucket.index, options_.replicas.rank()))
      ranges.push_back({bucket.buffer->parameters()[piece.entry], piece.in_parameter.begin, piece.in_parameter.end});
  else
    for (size_t entry : layout.buckets[bucket.index].entries)
      ranges.push_back({bucket.buffer->parameters()[entry], 0, layout.slots[entry].range.size()});
  return ranges;
}

void BucketGroup::begin_step() {
  grad_works_.clear();  // of a step that an error ended
  num_unready_ = num_parameters_;
}

void BucketGroup::mark_ready() {
  require(num_unready_ > 0, "[BucketGroup] {} of {} parameters got more gradients than it has parameters.",
          options_.name, num_parameters_);
  --num_unready_;
}

Tensor BucketGroup::shard_of(const Tensor& buffer, const Bucket& bucket) const {
  return whole_of(buffer, bucket.buffer->layout().shard(bucket.index, options_.replicas.rank()));
}

void BucketGroup::start_grad_sync(const Context& ctx) {
  for (const Bucket& bucket : buckets_) {
    Tensor grads = whole_of(bucket.buffer->grads(), bucket.range());
    const double factor = bucket.buffer->plan().gradient_scaling_factor;
    if (factor != 1)
      launch(ctx, {.name = "scale"}, [&](auto& stream) {
        kernels::scale(stream, {.x = std::as_const(grads).view(), .y = grads.view(), .factor = factor});
      });
    if (options_.replicas.size() == 1) continue;
    const std::string site = "grads of " + options_.name;
    CommOptions call{.site = site, .keep_alive = KeepAlive::of(grads.storage())};
    grad_works_.push_back(options_.shards
                              ? options_.replicas.reduce_scatter(std::as_const(grads).view(),
                                                                 shard_of(bucket.buffer->grads(), bucket).view(),
                                                                 reduction(), std::move(call))
                              : options_.replicas.all_reduce(grads.view(), reduction(), std::move(call)));
  }
}

void BucketGroup::start_instance_sync() {
  if (options_.instances.size() == 1) return;
  wait_for(grad_works_);
  const std::string site = "grads of instances, " + options_.name;
  for (const Bucket& bucket : buckets_) {
    Tensor shard = shard_of(bucket.buffer->grads(), bucket);
    grad_works_.push_back(options_.instances.all_reduce(shard.view(), reduction(),
                                                        {.site = site, .keep_alive = KeepAlive::of(shard.storage())}));
  }
}

void BucketGroup::finish_grad_sync() { wait_for(grad_works_); }

void BucketGroup::start_param_sync() {
  if (!options_.shards || options_.replicas.size() == 1) return;
  const std::string site = "params of " + options_.name;
  for (const Bucket& bucket : buckets_) {
    Tensor params = whole_of(bucket.buffer->params(), bucket.range());
    const Tensor shard = shard_of(bucket.buffer->params(), bucket);
    param_works_.push_back(options_.replicas.all_gather(shard.view(), params.view(),
                                                        {.site = site, .keep_alive = KeepAlive::of(params.storage())}));
  }
}

void BucketGroup::finish_param_sync() {
  if (!param_works_.empty()) wait_for(param_works_);
}

}  // namespace megatron
