#include "tests/models/gpt/tensor_parallel_case.h"

#include <mutex>

#include "megatron/autograd/shard_elements.h"
#include "megatron/comm/meta/meta_world.h"
#include "megatron/distributed/finalize_model_grads.h"
#include "megatron/distributed/param_and_grad_buffer.h"
#include "megatron/pipeline_parallel/executor.h"
#include "tests/models/gpt/golden_case.h"
#include "tests/testing/rank_threads.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {
namespace {

using WholeTensors = std::map<std::string, std::vector<double>>;

/// Large enough that every part of a model matters; near 1 for what multiplies a normalized value.
double weight_value(const RandomKey& key, const Parameter& parameter, int64_t element) {
  const double value = 2 * uniform(key.at("weight").at(parameter.name()), element) - 1;
  const bool is_gamma = parameter.name().find("norm.weight") != std::string::npos;
  return is_gamma ? 1 + 0.3 * value : 0.5 * value;
}

void fill(const Context& ctx, Parameter& parameter, const WholeTensors& whole) {
  const auto given = whole.find(parameter.name());
  launch(ctx, [&](auto&) {
    dispatch_floating(parameter.dtype(), [&]<class T>() {
      for_each_shard_element(parameter, [&](int64_t from, int64_t to) {
        const double value =
            given != whole.end() ? given->second.at(static_cast<size_t>(from)) : weight_value(ctx.key, parameter, from);
        parameter.value().data<T>()[to] = static_cast<T>(value);
      });
    });
  });
}

/// Puts a shard into its place. @return whether elements that another rank has put there are the same.
bool put(const Parameter& parameter, const std::vector<double>& shard, WholeTensors& tensors) {
  std::vector<double>& whole = tensors[parameter.name()];
  if (whole.empty()) whole.assign(static_cast<size_t>(parameter.options().shard.global_shape.num_elements()), HUGE_VAL);
  bool agrees = true;
  for_each_shard_element(parameter, [&](int64_t to, int64_t from) {
    const double value = shard.at(static_cast<size_t>(from));
    double& place = whole[static_cast<size_t>(to)];
    agrees = agrees && (place == HUGE_VAL || place == value);
    place = value;
  });
  return agrees;
}

/// One rank's model and batches.
class Rank {
 public:
  Rank(const TensorParallelCase& c, const ProcessGroup& tp, const WholeTensors& weights)
      : c_(c), tp_(tp), test_(c.device, 1), ctx_(test_.context()) {
    ProcessGroupCollection groups = ProcessGroupCollection::single();
    groups.tp = tp;
    model_ = std::make_unique<GptModel>(ModuleContext{
        .ctx = ctx_, .config = c.config, .groups = groups, .path = "", .sequence_parallel = c.sequence_parallel});
    ctx_.save = c.save;
    const DType dtype = c.config.params_dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
    buffer_ = std::make_unique<ParamAndGradBuffer>(ctx_, model_->parameters(), dtype);
    for (Parameter* parameter : model_->parameters()) fill(ctx_, *parameter, weights);
    for (int m = 0; m < c.num_micro_batches; ++m) batches_.push_back(step_batch(ctx_, c, m));
    test_.step.loss_seed = 1 / static_cast<double>(c.s * c.b * c.num_micro_batches);
  }

  void run() {
    const auto batch = [this](int m) -> const Batch& { return batches_[static_cast<size_t>(m)]; };
    const ExecutorOptions options{.chunks = model_->chunks(batch), .losses = model_->losses()};
    buffer_->begin_step();
    Executor executor(ctx_, options);
    executor.on_output = [&](const Payload& output, int) {
      launch(ctx_, [&](auto&) { loss += *at(output, "lm loss").data<double>() * test_.step.loss_seed; });
      if (on_forward_end) on_forward_end();
    };
    executor.run(one_f_one_b(0, 1, c_.num_micro_batches, c_.weight_gradient));
    buffer_->finish_step(ctx_);
    if (on_backward_end) on_backward_end();
    all_reduce_tensor_parallel_grads(ctx_, buffer_->parameters(), tp_);
  }

  std::vector<double> logits(std::optional<int64_t> num_prompt) {
    const Tensor& tokens = batches_[0].tensor("tokens");
    if (!num_prompt) return values_of(model_->logits(ctx_, tokens, batches_[0].layout("tokens"), nullptr));
    const LayerStates states = model_->make_states(ctx_, {.max_rows = c_.s, .b = c_.b});
    std::vector<double> result;
    for (int64_t begin = 0, length = *num_prompt; begin < c_.s; begin += length, length = 1) {
      const auto layout = SequenceLayout::uniform(ctx_, {.s = length, .b = c_.b, .first_position = begin});
      const auto part = values_of(model_->logits(ctx_, tokens.slice(0, begin, length), layout, &states));
      result.insert(result.end(), part.begin(), part.end());
    }
    return result;
  }

  std::vector<Parameter*> parameters() const { return model_->parameters(); }
  const Arena& arena() const { return test_.device.arena; }

  double loss = 0;
  std::function<void()> on_forward_end, on_backward_end;

 private:
  const TensorParallelCase& c_;
  ProcessGroup tp_;
  TestDevice test_;
  Context ctx_;
  std::unique_ptr<GptModel> model_;
  std::unique_ptr<ParamAndGradBuffer> buffer_;
  std::vector<Batch> batches_;
};

void run_rank(const TensorParallelCase& c, RankContext& context, const WholeTensors& weights, std::mutex& mutex,
              StepResult& result) {
  std::optional<FaultyGroup> faulty;
  if (c.fault) faulty.emplace(context.group, context.world.recorder(), *c.fault, c.faulty);
  Rank rank(c, faulty ? faulty->group() : context.group, weights);
  const FlightRecorder& recorder = context.world.recorder();
  const int64_t begin = recorder.num_operations();
  int64_t forward_end = begin, backward_end = begin;
  rank.on_forward_end = [&] { forward_end = recorder.num_operations(); };
  rank.on_backward_end = [&] { backward_end = recorder.num_operations(); };
  rank.run();
  const std::lock_guard lock(mutex);
  for (Parameter* parameter : rank.parameters()) {
    put(*parameter, values_of(parameter->value()), result.weights);
    if (!put(*parameter, values_of(parameter->main_grad()), result.gradients)) result.replicas_agree = false;
  }
  if (context.rank != 0) return;
  result.loss = rank.loss;
  result.events = rank.arena().events();
  result.peak_bytes = rank.arena().total().peak;
  result.num_collectives = faulty ? faulty->num_collectives() : recorder.num_operations() - begin;
  if (c.num_micro_batches != 1) return;
  const std::vector<Collective> all = collectives_since(recorder, begin);
  const auto at = [&](int64_t number) { return all.begin() + (number - begin); };
  result.forward.assign(all.begin(), at(forward_end));
  result.backward.assign(at(forward_end), at(backward_end));
  result.finalize.assign(at(backward_end), all.end());
}

}  // namespace

namespace {

SequenceLayout layout_of(const Context& ctx, const TensorParallelCase& c, int micro_batch) {
  const SequenceLayout::Options options{.s = c.s, .b = c.b, .first_sample = micro_batch * c.b};
  if (!c.has_documents) return SequenceLayout::uniform(ctx, options);
  std::vector<std::vector<int32_t>> cuts;
  std::vector<int32_t> positions(static_cast<size_t>(c.s * c.b));
  for (int64_t column = 0; column < c.b; ++column) {
    const int64_t cut = 2 + column;
    cuts.push_back({static_cast<int32_t>(cut)});
    for (int64_t row = 0; row < c.s; ++row)
      positions[static_cast<size_t>(row * c.b + column)] = static_cast<int32_t>(row < cut ? row : row - cut);
  }
  return SequenceLayout::cut_at(ctx, options, cuts, positions);
}

}  // namespace

Batch step_batch(const Context& ctx, const TensorParallelCase& c, int micro_batch) {
  if (!c.tokens.empty()) {
    const std::vector<double> mask(c.tokens.size(), 1);
    return micro_batch_of(ctx, {c.b, c.s}, c.tokens, c.labels, mask);
  }
  Tensor tokens = ctx.empty("tokens", {c.s, c.b}, DType::kInt64, MemoryUse::kData);
  Tensor labels = ctx.empty("labels", {c.s, c.b}, DType::kInt64, MemoryUse::kData);
  Tensor loss_mask = ctx.empty("mask", {c.s, c.b}, DType::kFloat32, MemoryUse::kData);
  launch(ctx, [&](auto&) {
    for (int64_t i = 0; i < c.s * c.b; ++i) {
      const int64_t token = micro_batch * c.s * c.b + i;
      const auto draw = [&](std::string_view what) {
        return static_cast<int64_t>(uniform(ctx.key.at("batch").at(what), token) *
                                    static_cast<double>(c.config.vocab_size));
      };
      tokens.data<int64_t>()[i] = draw("tokens");
      labels.data<int64_t>()[i] = draw("labels");
      loss_mask.data<float>()[i] = token % 5 == 4 ? 0.0F : 1.0F;
    }
  });
  return {.tensors = {{"tokens", tokens}, {"labels", labels}, {"loss_mask", loss_mask}},
          .layouts = {{"tokens", layout_of(ctx, c, micro_batch)}}};
}

StepResult run_step(const TensorParallelCase& c, const std::map<std::string, std::vector<double>>& whole_weights) {
  StepResult result;
  std::mutex mutex;
  run_ranks(c.num_ranks, [&](RankContext& rank) { run_rank(c, rank, whole_weights, mutex, result); });
  return result;
}

std::vector<std::vector<double>> run_logits(const TensorParallelCase& c, std::optional<int64_t> num_prompt) {
  std::vector<std::vector<double>> result(static_cast<size_t>(c.num_ranks));
  run_ranks(c.num_ranks, [&](RankContext& context) {
    Rank rank(c, context.group, {});
    result[static_cast<size_t>(context.rank)] = rank.logits(num_prompt);
  });
  return result;
}

std::vector<Arena::Event> meta_events(TensorParallelCase c, int rank) {
  c.device = DeviceKind::kMeta;
  MetaWorld world(rank, c.num_ranks);
  std::vector<int> all;
  for (int r = 0; r < c.num_ranks; ++r) all.push_back(r);
  Rank meta(c, world.split("tp", {all}).value(), {});
  meta.run();
  return meta.arena().events();
}

}  // namespace megatron::testing
