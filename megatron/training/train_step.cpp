#include "megatron/training/train_step.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <list>
#include <memory>

#include "megatron/core/copy.h"
#include "megatron/core/readback.h"
#include "megatron/distributed/finalize_model_grads.h"
#include "megatron/kernels/elementwise.h"
#include "megatron/kernels/loss_seed.h"
#include "megatron/pipeline_parallel/executor.h"
#include "megatron/training/further_tokens.h"
#include "megatron/transformer/moe/moe_step.h"
#include "megatron/transformer/qk_clip.h"

namespace megatron {
namespace {

constexpr int kTimerLevel = 1;  // of --timing-log-level

}  // namespace

TrainStep::TrainStep(const Context& ctx, const Model& model, DistributedDataParallel& ddp, Optimizer& optimizer,
                     GpuRanks* gpu_ranks, const TrainStepOptions& options)
    : ctx_(ctx),
      model_(model),
      losses_(model.losses()),
      ddp_(ddp),
      groups_(ddp.groups()),
      optimizer_(optimizer),
      gpu_ranks_(gpu_ranks),
      options_(options),
      graph_(ctx.device, gpu_ranks, options.num_graph_warm_up_steps) {}

double TrainStep::loss_weight(const HostBatch& batch, size_t num_batches) const {
  if (options_.calculate_per_token_loss) return 1;
  return 1 / (static_cast<double>(std::max<int64_t>(batch.num_valid_tokens, 1)) * static_cast<double>(num_batches));
}

double TrainStep::PendingLosses::sum() const {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) sum += values[i] / weights[i % weights.size()];
  return sum;
}

/// The gradient of a loss that is attached in a micro-batch, as of a mean over its tokens: where every token of the
/// step weighs the same, layers count such a loss once for each token. Else gradients are averaged over context
/// parallelism too, whose ranks each have a share of the loss. Source: Megatron-LM's pull request 2217.
Tensor TrainStep::attached_loss_scale(size_t num_batches) const {
  Tensor scale = ctx_.empty(kAttachedLossScale, {1}, DType::kFloat64, MemoryUse::kData);
  const double weight =
      options_.calculate_per_token_loss ? 1 : static_cast<double>(groups_.cp.size()) / static_cast<double>(num_batches);
  launch(ctx_, {.name = "scale"}, [&](auto& stream) {
    kernels::fill(stream, {.y = scale.view(), .value = weight});
    kernels::scale(stream, {.x = scale.view(), .y = scale.view(), .device_factor = &ctx_.step.loss_seed});
  });
  return scale;
}

ContextBatches TrainStep::own_batches(const MicroBatches& whole) const {
  if (!options_.hybrid_context) {
    const ContextCut& cut = options_.context.cut;
    const int64_t num_further = model_.config().mtp.num_layers;
    if (cut.size > 1 && num_further > 0) return {parts_with_further_tokens(whole, cut, num_further), {}};
    return ContextBatches(whole, cut);
  }
  return ctx_.device.is_meta() ? longest_hybrid_batches(whole, groups_, *options_.hybrid_context)
                               : hybrid_context_batches(whole, groups_, *options_.hybrid_context);
}

/// @param place  null: that of the rank in the layout.
BatchUploadOptions TrainStep::upload_options(const BatchPlace* place, int64_t first_sample, double loss_weight) const {
  BatchUploadOptions options{.first_sample = first_sample,
                             .loss_weight = loss_weight,
                             .has_positions = options_.has_positions,
                             .context = options_.context};
  if (!place) return options;
  options.first_sample = place->sample;
  options.sample_length = place->sample_length;
  options.first_position = place->first_position;
  options.context.cut = {.rank = place->rank, .size = place->size};
  options.row_numbers = place->row_numbers;
  // A document has a token at least, so memory depends on the tokens alone.
  options.context.max_documents = place->size > 1 ? 1 : std::ssize(place->row_numbers);
  return options;
}

TrainStep::Uploaded TrainStep::upload_all(const MicroBatches& batches, std::span<const BatchPlace> places,
                                          bool forward_only, const StepMetrics& metrics) {
  Uploaded uploaded;
  Tensor scale;
  if (!forward_only && model_.attaches_losses()) scale = attached_loss_scale(batches.size());
  PendingLosses& losses = uploaded.losses;
  const auto with_tensors_of_step = [this, scale, &metrics](Batch batch) {
    for (const MetricSpec& spec : model_.metrics())
      batch.tensors.push_back({spec.name, metrics.accumulator(spec.name)});
    if (scale.defined()) batch.tensors.push_back({std::string(kAttachedLossScale), scale});
    return batch;
  };
  if (!places.empty()) {
    losses.weights = {1};
    uploaded.batches.resize(batches.size());
    uploaded.upload = [=, this](size_t m) {
      return with_tensors_of_step(megatron::upload(ctx_, batches[m], upload_options(&places[m], 0, 1)));
    };
  }
  // Micro-batch m of all ranks together lies before micro-batch m + 1 in the global batch, in the order of the ranks.
  int64_t first_of_all = 0;
  for (size_t m = 0; places.empty() && m < batches.size(); ++m) {
    const HostBatch batch = batches[m];
    const int64_t first_sample = first_of_all + groups_.dp.rank() * batch.num_samples;
    losses.weights.push_back(forward_only ? 1 : loss_weight(batch, batches.size()));
    uploaded.batches.push_back(
        with_tensors_of_step(upload(ctx_, batch, upload_options(nullptr, first_sample, losses.weights.back()))));
    first_of_all += groups_.dp.size() * batch.num_samples;
  }
  losses.values.resize(losses_.size() * losses.weights.size());
  losses.on_device = ctx_.empty("losses", {std::ssize(losses.values)}, DType::kFloat64, MemoryUse::kData);
  return uploaded;
}

/// A rank without pipeline stages has done backward of a micro-batch when it begins the next.
const Batch& TrainStep::Uploaded::at(int micro_batch) {
  const auto place = static_cast<size_t>(micro_batch);
  if (upload && micro_batch != current) {
    if (current >= 0) batches[static_cast<size_t>(current)] = {};
    batches.at(place) = upload(place);
    current = micro_batch;
  }
  return batches.at(place);
}

void TrainStep::execute(Uploaded& uploaded, bool forward_only, Timers* timers) {
  Tensor& losses = uploaded.losses.on_device;
  // A rank that is not the last of the pipeline computes none.
  launch(ctx_, {.name = "fill"}, [&](auto& stream) { kernels::fill(stream, {.y = losses.view(), .value = 0}); });
  const auto micro_batch = [&](int m) -> const Batch& { return uploaded.at(m); };
  const ExecutorOptions options{
      .chunks = model_.chunks(micro_batch),
      .border_payload = [&](int stage, int m) { return model_.border_payload(stage, micro_batch(m)); },
      .losses = losses_,
      .pipeline_group = &groups_.pp,
      .stage_order = placement_of(options_.schedule).order(),
      .timers = timers};
  Executor executor(ctx_, options);
  executor.on_output = [&](const Payload& output, int m) {
    const size_t num_slots = uploaded.losses.weights.size(), slot = static_cast<size_t>(m) % num_slots;
    for (size_t i = 0; i < losses_.size(); ++i) {
      Tensor place = losses.slice(0, static_cast<int64_t>(i * num_slots + slot), 1);
      launch(ctx_, {.name = "loss_sum"}, [&](auto& stream) {
        kernels::accumulate(stream, {.x = at(output, losses_[i]).view(), .y = place.view()});
      });
    }
  };
  const Schedule& schedule = schedule_of(uploaded.batches.size(), forward_only);
  if (forward_only)
    executor.run_forward_only(schedule);
  else
    executor.run(schedule);
}

/// With what gradients need beside the data-parallel sum. In a graph nothing has a time of its own.
TrainStep::PendingLosses TrainStep::forward_backward(const ContextBatches& own, int64_t iteration,
                                                     const StepMetrics& metrics, Timers* timers) {
  Uploaded uploaded = upload_all(own.own(), own.places(), false, metrics);
  std::vector<const Tensor*> inputs{&uploaded.losses.on_device};
  for (const Batch& batch : uploaded.batches)
    for (const NamedTensor& item : batch.tensors) inputs.push_back(&item.tensor);
  Timers* inner = graph_.is_on() ? nullptr : timers;
  if (graph_.is_on()) ddp_.settle_param_sync();
  graph_.run(fmt::format("forward-backward of iteration {}", iteration + 1), inputs, [&] {
    ddp_.begin_step();
    execute(uploaded, false, inner);
    timed(inner, "all-grads-sync", kTimerLevel, [&] {
      const ProfiledRange range(ctx_.device.profiler, {.name = "gradients of all ranks"});
      ddp_.finish_grad_sync();
    });
    timed(inner, "non-tensor-parallel-grads-all-reduce", kTimerLevel,
          [&] { all_reduce_tensor_parallel_grads(ctx_, ddp_.parameters(), groups_.tp); });
    timed(inner, "embedding-grads-all-reduce", kTimerLevel, [&] { all_reduce_tied_grads(ddp_.parameters(), groups_); });
  });
  return std::move(uploaded.losses);
}

const Schedule& TrainStep::schedule_of(size_t num_micro_batches, bool forward_only) {
  const auto [found, is_new] = schedules_.try_emplace({num_micro_batches, forward_only});
  if (is_new) {
    ScheduleOptions options = options_.schedule;
    options.num_micro_batches = static_cast<int>(num_micro_batches);
    options.forward_only = forward_only;
    found->second = std::move(make_schedules(options)[static_cast<size_t>(groups_.pp.rank())]);
  }
  return found->second;
}

/// All that kernels are to know of the step, before its first kernel. The number of tokens stays on the device: the
/// host waits for no other rank.
void TrainStep::write_step_state(const ParamScheduler& scheduler, int64_t iteration, int64_t own_tokens,
                                 StepMetrics& metrics) {
  StepState state{.step = iteration};
  optimizer_.begin_step(ctx_, scheduler, optimizer_.loss_scale(), state);
  write_value(ctx_.device, state, &ctx_.step);
  Tensor num_tokens = metrics.accumulator(kNumValidTokens);
  write_values(ctx_.device, std::span<const int64_t>(&own_tokens, 1), num_tokens);
  metrics.reduce_block_of(kNumValidTokens);
  if (options_.calculate_per_token_loss)
    launch(ctx_, {.name = "loss_seed"}, [&](auto& stream) {
      kernels::loss_seed(stream, {.num_tokens = std::as_const(num_tokens).data<int64_t>(),
                                  .loss_scale = optimizer_.loss_scale(),
                                  .state = &ctx_.step});
    });
}

/// Losses come from the last stage; other stages have zeros. The valid tokens have a block of their own, as the step
/// needs them before its forward.
std::vector<MetricSpec> TrainStep::metric_specs() const {
  std::vector<MetricSpec> specs{
      {.name = std::string(kNumValidTokens), .dtype = DType::kInt64, .groups = {groups_.dp_cp}}};
  for (const std::string& loss : losses_) specs.push_back({.name = loss, .groups = {groups_.pp, groups_.dp_cp}});
  std::ranges::copy(model_.metrics(), std::back_inserter(specs));
  return specs;
}

void TrainStep::add_up_losses(const PendingLosses& losses, const StepMetrics& metrics) const {
  const size_t num_batches = losses.weights.size();
  launch(ctx_, {.name = "loss_sum"}, [&](auto& stream) {
    for (size_t i = 0; i < losses.values.size(); ++i)
      kernels::accumulate(stream, {.x = losses.on_device.slice(0, static_cast<int64_t>(i), 1).view(),
                                   .y = metrics.accumulator(losses_[i / num_batches]).view(),
                                   .factor = 1 / losses.weights[i % num_batches]});
  });
}

TrainStep::Computed TrainStep::compute(const ContextBatches& batches, const ParamScheduler& scheduler,
                                       int64_t iteration, Timers* timers) {
  StepMetrics metrics(ctx_, metric_specs());
  write_step_state(scheduler, iteration, num_valid_tokens_of(batches.own()), metrics);
  model_.begin_step(ctx_);
  PendingLosses own = timed(timers, "forward-backward", kTimerLevel,
                            [&] { return forward_backward(batches, iteration, metrics, timers); });
  add_up_losses(own, metrics);
  metrics.reduce();
  return {.metrics = std::move(metrics), .own = std::move(own)};
}

LossSum TrainStep::loss_of(const std::vector<StepMetric>& metrics) const {
  std::vector<double> of_each;
  for (const std::string& loss : losses_) of_each.push_back(value_of(metrics, loss));
  return loss_sum_of(std::move(of_each), static_cast<int64_t>(value_of(metrics, kNumValidTokens)));
}

StepValues TrainStep::values_of(Computed& computed) {
  std::array<double, 2> norms{};
  Readback readback;
  computed.metrics.add_to(readback);
  readback.add(computed.own.on_device, std::span(computed.own.values));
  optimizer_.add_norms(ctx_, readback, norms);
  readback.wait(ctx_);
  const auto [largest, norm] = norms;
  return {.loss = loss_of(computed.metrics.values()).mean(),
          .grad_norm = std::isfinite(largest) ? norm : largest,
          .own_loss = computed.own.sum()};
}

TrainStepResult TrainStep::update(Computed& computed, size_t num_batches, Timers* timers) {
  Readback readback;
  TrainStepResult result;
  result.num_micro_batches = static_cast<int64_t>(num_batches) * groups_.dp.size();
  computed.metrics.add_to(readback);
  result.optimizer = timed(timers, "optimizer", kTimerLevel, [&] {
    const ProfiledRange range(ctx_.device.profiler, {.name = "optimizer"});
    return optimizer_.step(ctx_, readback, timers);
  });
  result.metrics = computed.metrics.values();
  result.loss = loss_of(result.metrics);
  return result;
}

void TrainStep::clip_qk(TrainStepResult& result) {
  const auto found = std::ranges::find(result.metrics, kMaxAttentionLogits, &StepMetric::name);
  if (found == result.metrics.end()) return;
  result.max_attention_logit = std::ranges::max(found->values);
  const std::vector<ScaledRows> rows = model_.clipped_rows(found->values);
  if (!rows.empty()) optimizer_.scale_rows(ctx_, rows);
}

/// A step that is computed again has the same state: its number, which is part of every dropout counter, and weights.
TrainStepResult TrainStep::run(const MicroBatches& batches, const ParamScheduler& scheduler, int64_t iteration,
                               Timers* timers, const StepExamination* examination) {
  const ContextBatches own = own_batches(batches);  // hosts may wait for each other's documents: not in the step
  const GpuRanks::Step step(gpu_ranks_);
  Computed computed = compute(own, scheduler, iteration, timers);
  const auto examine = [&] {
    while (examination->wants_again(values_of(computed))) computed = compute(own, scheduler, iteration, timers);
  };
  if (examination && examination->before_update) examine();
  TrainStepResult result = update(computed, batches.size(), timers);
  if (result.optimizer.overflow) {  // on any rank, which all ranks know; nothing has changed
    model_.set_bounded(false);
    computed = compute(own, scheduler, iteration, timers);
    result = update(computed, batches.size(), timers);
    result.was_repeated = true;
    model_.set_bounded(true);
  }
  step.check_what_was_read();
  if (examination && !examination->before_update && !std::isfinite(result.optimizer.grad_norm)) examine();
  if (!result.optimizer.overflow) {
    clip_qk(result);
    model_.finish_step(ctx_);
  }
  return result;
}

/// The last micro-batch of a data set may be short. What crosses a pipeline's borders has one shape in a schedule.
LossSum TrainStep::evaluate(const MicroBatches& whole) {
  const GpuRanks::Step step(gpu_ranks_);
  const ContextBatches own(whole, options_.context.cut);
  MicroBatches batches = own.own();
  const int64_t num_tokens = num_valid_tokens_of(batches);
  Readback readback;
  const StepMetrics metrics(ctx_, model_.metrics());  // which segments add to, and nobody reads
  std::list<PendingLosses> parts;
  while (!batches.empty()) {
    size_t num_equal = 1;
    while (num_equal < batches.size() && batches[num_equal].num_samples == batches[0].num_samples) ++num_equal;
    Uploaded uploaded = upload_all(batches.first(num_equal), {}, true, metrics);
    execute(uploaded, true, nullptr);
    PendingLosses& part = parts.emplace_back(std::move(uploaded.losses));
    readback.add(part.on_device, std::span(part.values));
    batches = batches.after(num_equal);
  }
  readback.wait(ctx_);
  step.check_what_was_read();
  std::vector<double> of_each(losses_.size());
  for (const PendingLosses& part : parts) {
    const size_t num_batches = part.weights.size();
    for (size_t loss = 0; loss < part.values.size() / num_batches; ++loss) {
      double sum = 0;
      for (size_t i = 0; i < num_batches; ++i) sum += part.values[loss * num_batches + i] / part.weights[i];
      of_each[loss] += sum;
    }
  }
  return loss_sum_of(std::move(of_each), num_tokens);
}

}  // namespace megatron
