#include "tests/testing/toy_model.h"

#include <array>

#include "megatron/ops/activation.h"
#include "megatron/ops/add.h"
#include "megatron/ops/attention.h"
#include "megatron/ops/bias_dropout_add.h"
#include "megatron/ops/embedding.h"
#include "megatron/ops/linear.h"
#include "megatron/ops/masked_sum.h"
#include "megatron/ops/rms_norm.h"
#include "megatron/ops/split_qkv.h"
#include "megatron/tensor_parallel/lm_head_loss.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {

Parameter* ToyModel::make(const Context& ctx, const std::string& name, const Shape& shape, bool is_trainable) {
  const bool is_norm = shape.rank() == 1;
  own_.push_back(std::make_unique<Parameter>(ctx, ParameterOptions{.name = options_.prefix + name,
                                                                   .shard = ShardSpec::whole(shape),
                                                                   .dtype = options_.dtype,
                                                                   .is_trainable = is_trainable,
                                                                   .init_std = is_norm ? 0 : 0.5,
                                                                   .init_constant = 1}));
  return own_.back().get();
}

ToyModel::ToyModel(const Context& ctx, const ProcessGroup& tensor_group, const ToyOptions& options)
    : options_(options), local_heads_(kHeads / tensor_group.size()), first_head_(tensor_group.rank() * local_heads_) {
  tied_ = make(ctx, "tied", {kPadded, kHidden}, !options.is_frozen);
  frozen_ = make(ctx, "frozen", {kHidden, kHidden}, false);
  never_ = make(ctx, "never", {kHidden}, true);
  unlisted_ = make(ctx, "unlisted", {kHidden}, true);
  norm1_ = make(ctx, "norm1", {kHidden}, true);
  norm2_ = make(ctx, "norm2", {kHidden}, true);
  norm3_ = make(ctx, "norm3", {kHidden}, true);
  dead_ = make(ctx, "dead", {kHidden, kHidden}, true);
  for (int e = 0; e < 2; ++e)
    experts_.push_back({make(ctx, fmt::format("expert{}.up", e), {kFfn, kHidden}, true),
                        make(ctx, fmt::format("expert{}.down", e), {kHidden, kFfn}, true)});
  const int64_t d = kHidden / kHeads;
  ParallelLinearOptions linear{.name = options.prefix + "qkv",
                               .input_size = kHidden,
                               .output = {.num_groups = kHeads, .sections = {{d, false}, {d, true}, {d, true}}},
                               .bias = true,
                               .dtype = options.dtype,
                               .init_std = 0.5};
  qkv_ = std::make_unique<ColumnParallelLinear>(ctx, linear, tensor_group);
  linear.name = options.prefix + "proj";
  linear.output = {.sections = {{kHidden, false}}};
  proj_ = std::make_unique<RowParallelLinear>(ctx, linear, tensor_group);
}

std::vector<Parameter*> ToyModel::parameters() const {
  std::vector<Parameter*> all;
  for (const auto& p : own_) all.push_back(p.get());
  for (Parameter* p : qkv_->parameters()) all.push_back(p);
  for (Parameter* p : proj_->parameters()) all.push_back(p);
  return all;
}

void ToyModel::initialize(const Context& ctx) {
  for (Parameter* p : parameters()) p->initialize(ctx);
}

Payload ToyModel::embed(Context& ctx, const ToyBatch& batch) const {
  const Tensor x = embedding(ctx, batch.tokens, *tied_, 0, nullptr, batch.layout);
  return {{"hidden", add(ctx, x, linear(ctx, x, *frozen_, nullptr))}};
}

Payload ToyModel::attend(Context& ctx, const Payload& in, const ToyBatch& batch) const {
  const Tensor& x = at(in, "hidden");
  const Tensor normed = rms_norm(ctx, x, norm1_, {});
  linear(ctx, normed, *dead_, nullptr);  // nobody reads it
  const QueryKeyValue qkv =
      split_qkv(ctx, qkv_->forward(ctx, normed), {.num_groups = local_heads_, .num_heads = local_heads_});
  const Tensor a =
      attention(ctx, qkv.query, qkv.key, qkv.value, batch.layout,
                {.scale = 0.5, .dropout = kDropout, .path = "attention", .first_head = first_head_}, nullptr);
  const Tensor y = bias_dropout_add(ctx, proj_->forward(ctx, a), proj_->bias(), x,
                                    {.rate = kDropout, .path = "proj.dropout", .rows = batch.layout.rows()});
  return {{"hidden", y}, {"normed", normed}};
}

Payload ToyModel::route(Context& ctx, const Payload& in, const ToyBatch& batch) const {
  const Tensor& x = at(in, "hidden");
  // One value in two slots: its gradient is a sum over uses.
  const Tensor normed = rms_norm(ctx, add(ctx, x, at(in, "normed")), norm2_, {});
  const Tensor rows = normed.reshape({normed.size(0) * normed.size(1), kHidden});
  Tensor sum = x.reshape(rows.shape());
  for (size_t e = 0; e < experts_.size(); ++e) {
    if (e + 1 == experts_.size() && batch.skips_last_expert) continue;
    const Tensor chosen = gather_rows(ctx, rows, batch.routed[e]);
    const Tensor up =
        activation(ctx, linear(ctx, chosen, *experts_[e].up, nullptr), nullptr, kernels::Activation::kGelu);
    const Tensor dropped = dropout(
        ctx, up,
        {.rate = kDropout, .path = "expert.dropout", .rows = batch.layout.rows(), .row_list = batch.routed[e].rows});
    sum = add(ctx, sum,
              scatter_rows(ctx, linear(ctx, dropped, *experts_[e].down, nullptr), batch.routed[e], rows.size(0)));
  }
  return {{"hidden", sum.reshape(x.shape())}};
}

Payload ToyModel::head(Context& ctx, const Payload& in, const ToyBatch& batch) const {
  const Tensor normed = rms_norm(ctx, at(in, "hidden"), norm3_, {});
  const Tensor losses = lm_head_loss(ctx, normed, *tied_, batch.labels, {.vocab_size = kVocabulary});
  return {{"loss", masked_sum(ctx, losses, batch.loss_mask)}};
}

Tensor ToyModel::hidden(Context& ctx, const ToyBatch& batch) const {
  return at(route(ctx, attend(ctx, embed(ctx, batch), batch), batch), "hidden");
}

Chunk ToyModel::segments(const std::vector<ToyBatch>& batches) const {
  const auto batch = [&batches](int m) -> const ToyBatch& { return batches[static_cast<size_t>(m)]; };
  std::vector<Parameter*> attention_parameters = {norm1_, dead_}, expert_parameters = {norm2_, never_};
  for (const auto& module_parameters : {qkv_->parameters(), proj_->parameters()})
    attention_parameters.insert(attention_parameters.end(), module_parameters.begin(), module_parameters.end());
  for (const Expert& e : experts_) expert_parameters.insert(expert_parameters.end(), {e.up, e.down});
  return {{"embedding", {tied_, frozen_}, [=, this](Context& c, const Payload&, int m) { return embed(c, batch(m)); }},
          {"attention", attention_parameters,
           [=, this](Context& c, const Payload& in, int m) { return attend(c, in, batch(m)); }, options_.recompute},
          {"experts", expert_parameters,
           [=, this](Context& c, const Payload& in, int m) { return route(c, in, batch(m)); }, options_.recompute},
          {"head", {tied_, norm3_}, [=, this](Context& c, const Payload& in, int m) { return head(c, in, batch(m)); }}};
}

std::vector<ToyBatch> toy_batches(const Context& ctx, int num_micro_batches) {
  constexpr int64_t s = ToyModel::kSequence;
  std::vector<ToyBatch> batches;
  for (int m = 0; m < num_micro_batches; ++m) {
    ToyBatch b{.tokens = ctx.empty("tokens", {s, 1}, DType::kInt32, MemoryUse::kData),
               .labels = ctx.empty("labels", {s, 1}, DType::kInt32, MemoryUse::kData),
               .loss_mask = ctx.empty("mask", {s, 1}, DType::kFloat32, MemoryUse::kData),
               .layout = SequenceLayout::uniform(ctx, {.s = s, .b = 1, .first_sample = m}),
               .routed = {},
               .skips_last_expert = m == 2};
    for (int e = 0; e < 2; ++e)
      b.routed.push_back({ctx.empty("routed",
                                    {
                                        s,
                                    },
                                    DType::kInt32, MemoryUse::kData),
                          Storage(ctx.device.arena, "routed.count", 4, MemoryUse::kData)});
    launch(ctx, [&](auto&) {
      std::array<int32_t, 2> counts{};
      for (int32_t i = 0; i < s; ++i) {
        const auto draw = [&](const char* name) { return uniform(ctx.key.at("toy").at(name), m * s + i); };
        b.tokens.data<int32_t>()[i] = static_cast<int32_t>(draw("tokens") * ToyModel::kVocabulary);
        b.labels.data<int32_t>()[i] = static_cast<int32_t>(draw("labels") * ToyModel::kVocabulary);
        b.loss_mask.data<float>()[i] = i == 3 ? 0.0F : 1.0F;
        const auto e = static_cast<size_t>(m != 2 && draw("route") < 0.4);  // micro-batch 2 goes to expert 0 alone
        b.routed[e].rows.data<int32_t>()[counts[e]++] = i;
      }
      for (size_t e = 0; e < 2; ++e) *reinterpret_cast<int32_t*>(b.routed[e].count.data()) = counts[e];
    });
    batches.push_back(std::move(b));
  }
  return batches;
}

}  // namespace megatron::testing
