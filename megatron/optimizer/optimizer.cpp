#include "megatron/optimizer/optimizer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <span>
#include <utility>

#include "megatron/core/copy.h"
#include "megatron/kernels/adam.h"
#include "megatron/kernels/elementwise.h"
#include "megatron/kernels/main_params.h"
#include "megatron/kernels/sgd.h"
#include "megatron/optimizer/element_numbers.h"
#include "megatron/optimizer/main_params.h"
#include "megatron/optimizer/step_operands.h"

namespace megatron {
namespace {

Tensor flat(const Tensor& x) { return x.reshape({x.num_elements()}); }

constexpr int kTimerLevel = 1;  // of --timing-log-level

double weight_decay_multiplier(const Parameter& parameter, const OptimizerConfig& config) {
  switch (parameter.options().weight_decay) {
    case WeightDecay::kUnlessVector:
      return parameter.shape().rank() > 1 ? 1 : 0;
    case WeightDecay::kNever:
      return 0;
    case WeightDecay::kIfQueryKeyNorm:
      return config.apply_wd_to_qk_layernorm ? 1 : 0;
  }
  throw InternalError("[Optimizer] unknown kind of weight decay");
}

}  // namespace

Optimizer::Optimizer(const Context& ctx, const OptimizerConfig& config, DistributedDataParallel& ddp)
    : config_(config),
      ddp_(ddp),
      scaler_(make_grad_scaler(config)),
      host_step_(ctx, config),
      norm_(ctx, ddp.config().use_distributed_optimizer ? ddp.groups().intra_dist_opt : ddp.groups().world) {
  for (const FlatRange& range : ddp.owned_ranges()) states_.push_back({range});
  make_groups();
  choose_states_on_host();
  for (OptimizerState& state : states_) fill_state(ctx, state);
  std::vector<FlatRange> all_counted;
  for (const OptimizerState& state : states_)
    for (const FlatRange& counted : counted_ranges(state, ddp)) {
      all_counted.push_back(counted);
      counted_mains_.push_back(state.main.defined()
                                   ? flat(state.main).slice(0, counted.begin - state.begin, counted.end - counted.begin)
                                   : counted.of(std::as_const(*counted.parameter).value()));
    }
  counted_grads_ = merged_grads(all_counted, ddp);
  learning_rates_ =
      ctx.empty("learning_rates", {static_cast<int64_t>(groups_.size())}, DType::kFloat64, MemoryUse::kOptimizer);
  make_tables(ctx);
  reload_main_params(ctx);
}

void Optimizer::choose_states_on_host() {
  if (!config_.optimizer_cpu_offload) return;
  const std::vector<bool> chosen = states_on_host(states_, groups_, config_.optimizer_offload_fraction);
  for (size_t i = 0; i < states_.size(); ++i) states_[i].is_on_host = chosen[i];
}

void Optimizer::fill_state(const Context& ctx, OptimizerState& state) const {
  Parameter& parameter = *state.parameter;
  const Shape shape = state.is_whole() ? parameter.shape() : Shape{state.end - state.begin};
  const bool is_double = parameter.dtype() == DType::kFloat64;
  const auto make = [&](std::string_view suffix, const Shape& sizes, DType dtype) {
    const std::string name = parameter.name() + std::string(suffix);
    Tensor x = state.is_on_host ? ctx.empty_on_host(name, sizes, dtype, MemoryUse::kOptimizer)
                                : ctx.empty(name, sizes, dtype, MemoryUse::kOptimizer);
    launch(ctx, {.name = "fill"}, [&](auto& stream) { kernels::fill(stream, {.y = x.view(), .value = 0}); });
    return x;
  };
  const auto moment_dtype = [&](StateDType dtype) { return is_double ? DType::kFloat64 : dtype_of(dtype); };
  const MainParams main = main_params_of(parameter.dtype(), config_);
  if (main == MainParams::kRemainder)
    state.remainder = make(".main_remainder", {state.end - state.begin, 2}, DType::kUInt8);
  if (main == MainParams::kCopy) state.main = make(".main", shape, DType::kFloat32);
  if (main == MainParams::kWeights) state.main = state.of(parameter.value()).reshape(shape);
  const bool is_adam = config_.optimizer == OptimizerType::kAdam;
  if (is_adam || config_.sgd_momentum != 0)
    state.exp_avg = make(".exp_avg", shape, moment_dtype(config_.exp_avg_dtype));
  if (is_adam) state.exp_avg_sq = make(".exp_avg_sq", shape, moment_dtype(config_.exp_avg_sq_dtype));
}

Tensor Optimizer::main_params(const Context& ctx, const OptimizerState& state) const {
  if (!state.remainder.defined() && !state.rounds_weights()) return state.main;
  const Shape shape = state.is_whole() ? state.parameter->shape() : Shape{state.end - state.begin};
  Tensor main = ctx.empty(state.parameter->name() + ".main", shape, DType::kFloat32, MemoryUse::kWorkspace);
  const Tensor weight = state.of(std::as_const(*state.parameter).value());
  launch(ctx, [&](auto& stream) {
    if (state.rounds_weights()) return kernels::copy(stream, {.x = weight.view(), .y = flat(main).view()});
    kernels::join_main_params(
        stream,
        {.weight = weight.view(), .remainder = std::as_const(state.remainder).view(), .main = flat(main).view()});
  });
  return main;
}

void Optimizer::set_main_params(const Context& ctx, const OptimizerState& state, const Tensor& main) {
  ddp_.finish_param_sync();
  Tensor weight = state.of(state.parameter->value()), remainder = state.remainder;
  launch(ctx, [&](auto& stream) {
    kernels::split_main_params(stream, {.main = main.reshape({state.end - state.begin}).view(),
                                        .weight = weight.view(),
                                        .remainder = remainder.view()});
  });
}

void Optimizer::scale_rows(const Context& ctx, std::span<const ScaledRows> scaled) {
  ddp_.finish_param_sync();
  for (const OptimizerState& state : states_) {
    const auto is_of_state = [&](const ScaledRows& rows) { return rows.parameter == state.parameter; };
    if (std::ranges::none_of(scaled, is_of_state)) continue;
    Tensor main = flat(main_params(ctx, state));
    const int64_t width = state.parameter->shape().num_elements() / state.parameter->shape()[0];
    for (const ScaledRows& rows : scaled) {
      const int64_t begin = std::max(rows.begin * width, state.begin), end = std::min(rows.end * width, state.end);
      if (!is_of_state(rows) || begin >= end) continue;
      Tensor part = main.slice(0, begin - state.begin, end - begin);
      launch(ctx, {.name = "scale"}, [&](auto& stream) {
        kernels::scale(stream, {.x = part.view(), .y = part.view(), .factor = rows.factor});
      });
    }
    if (state.remainder.defined()) {
      set_main_params(ctx, state, main);
    } else if (!state.steps_weights() || state.rounds_weights()) {
      Tensor weight = state.of(state.parameter->value());
      launch(ctx, {.name = "copy"},
             [&](auto& stream) { kernels::copy(stream, {.x = main.view(), .y = weight.view()}); });
    }
  }
  gather_params();
}

/// The groups have all parameters of the rank, so that they are the same on all data-parallel ranks; some are empty.
void Optimizer::make_groups() {
  std::map<std::array<bool, 2>, ParamGroup> by_kind;  // decoupled rate, no decay: the decaying group comes first
  size_t next = 0;
  for (const Parameter* parameter : ddp_.parameters()) {
    const double wd_mult = weight_decay_multiplier(*parameter, config_);
    const bool is_decoupled = config_.decoupled_lr && parameter->options().is_embedding_or_output;
    ParamGroup& group = by_kind[{is_decoupled, wd_mult == 0}];
    group.schedule.wd_mult = wd_mult;
    if (is_decoupled) {
      group.schedule.max_lr = config_.decoupled_lr;
      group.schedule.min_lr = config_.decoupled_min_lr;
    }
    if (next < states_.size() && states_[next].parameter == parameter) group.members.push_back(next++);
  }
  for (auto& [kind, group] : by_kind) groups_.push_back(std::move(group));
}

void Optimizer::make_tables(const Context& ctx) {
  struct Kind {
    kernels::RangeDTypes dtypes;
    std::vector<kernels::OptimizerRange> ranges;
    int64_t num_chunks = 0;
  };
  std::vector<Kind> kinds;
  const double* rates = learning_rates_.data<double>();
  for (size_t g = 0; g < groups_.size(); ++g)
    for (size_t i : groups_[g].members) {
      if (states_[i].is_on_host) {
        host_step_.add(ctx, states_[i], groups_[g].schedule, g);
        continue;
      }
      StepOperands operands(states_[i]);
      auto kind = std::ranges::find(kinds, operands.dtypes(), &Kind::dtypes);
      if (kind == kinds.end()) kind = kinds.insert(kind, {.dtypes = operands.dtypes()});
      kernels::OptimizerRange& range = kind->ranges.emplace_back(operands.range());
      if (rounds_at_random(states_[i]))
        range.rounding = {.key = ctx.key.at("rounding").at(states_[i].parameter->name()),
                          .numbers = element_numbers_of(*states_[i].parameter, states_[i].begin)};
      range.learning_rate = rates ? rates + g : nullptr;
      range.weight_decay_multiplier = groups_[g].schedule.wd_mult;
      range.first_chunk = kind->num_chunks;
      kind->num_chunks += kernels::num_range_chunks(range.size);
    }
  for (const Kind& kind : kinds) {
    const auto bytes = std::as_bytes(std::span(kind.ranges));
    Tensor memory =
        ctx.empty("optimizer_ranges", {static_cast<int64_t>(bytes.size())}, DType::kUInt8, MemoryUse::kOptimizer);
    copy_from_host(ctx.device, bytes, memory.data<uint8_t>());
    const kernels::OptimizerRanges ranges{
        .table = reinterpret_cast<const kernels::OptimizerRange*>(memory.data<uint8_t>()),
        .num_ranges = static_cast<int64_t>(kind.ranges.size()),
        .num_chunks = kind.num_chunks,
        .dtypes = kind.dtypes};
    tables_.push_back({ranges, std::move(memory)});
  }
  host_step_.prepare(ctx);
}

void Optimizer::reload_main_params(const Context& ctx) {
  ddp_.finish_param_sync();
  for (OptimizerState& state : states_) {
    if (state.remainder.defined()) {
      launch(ctx, {.name = "fill"},
             [&](auto& stream) { kernels::fill(stream, {.y = state.remainder.view(), .value = 0}); });
      continue;
    }
    if (state.steps_weights()) continue;
    const Tensor model = state.of(std::as_const(*state.parameter).value());
    launch(ctx, {.name = "copy"},
           [&](auto& stream) { kernels::copy(stream, {.x = model.view(), .y = flat(state.main).view()}); });
  }
}

void Optimizer::copy_main_to_model_params(const Context& ctx) {
  ddp_.finish_param_sync();
  for (OptimizerState& state : states_) {
    if (state.steps_weights() || state.remainder.defined()) continue;
    Tensor model = state.of(state.parameter->value());
    launch(ctx, {.name = "copy"}, [&](auto& stream) {
      kernels::copy(stream, {.x = std::as_const(state.main).reshape(model.shape()).view(), .y = model.view()});
    });
  }
  gather_params();
}

void Optimizer::begin_step(const Context& ctx, const ParamScheduler& scheduler, double loss_seed, StepState& state) {
  is_in_step_ = true;
  state.loss_seed = loss_seed;
  const auto t = static_cast<double>(num_steps_ + 1);
  state.inverse_scale = scaler_ ? scaler_->inverse_scale() : 1.0;
  state.weight_decay = scheduler.weight_decay();
  state.bias_correction1 = 1 - std::pow(config_.adam_beta1, t);
  state.bias_correction2 = 1 - std::pow(config_.adam_beta2, t);
  state.found_inf = state.overflow = 0;
  host_learning_rates_.clear();
  for (const ParamGroup& group : groups_) host_learning_rates_.push_back(scheduler.lr(group.schedule));
  write_values(ctx.device, std::span<const double>(host_learning_rates_), learning_rates_);
}

void Optimizer::find_norms(const Context& ctx, bool count_zeros) {
  norm_.find_largest_and_overflow(ctx, counted_grads_);
  norm_.add_squares(ctx, counted_grads_, count_zeros);
  norm_.finish(ctx, std::max(config_.clip_grad, 0.0), skips_nonfinite());
}

void Optimizer::add_norms(const Context& ctx, Readback& readback, std::span<double> norms) {
  find_norms(ctx, false);
  readback.add(norm_.norms(), norms);
}

/// If there is an infinity, kernels leave everything as it is; the host learns of it afterwards.
StepResult Optimizer::step(const Context& ctx, Readback& readback, Timers* timers) {
  require(std::exchange(is_in_step_, false),
          "[Optimizer] step without a begin_step before it: learning rates and bias corrections would be those of "
          "another step. A step is begin_step, forward and backward, step.");
  ddp_.finish_param_sync();
  host_step_.begin();
  timed(timers, "optimizer-clip-main-grad", kTimerLevel, [&] { find_norms(ctx, config_.log_num_zeros_in_grad); });
  timed(timers, "optimizer-inner-step", kTimerLevel, [&] { update(ctx); });
  const bool waits_for_weights = config_.use_distributed_optimizer && !config_.overlap_param_gather;
  timed(waits_for_weights ? timers : nullptr, "params-all-gather", kTimerLevel, [&] { gather_params(); });
  std::array<double, 2> norms{};
  double overflow = 0;
  int64_t num_zeros = 0;
  readback.add(norm_.norms(), std::span<double>(norms));
  readback.add(norm_.overflow(), std::span(&overflow, 1));
  readback.add(norm_.num_zeros(), std::span(&num_zeros, 1));
  readback.wait(ctx);
  const auto [largest, norm] = norms;
  if (std::bit_cast<int64_t>(overflow) != 0) return {.success = false, .overflow = true, .grad_norm = norm};
  const bool is_finite = std::isfinite(largest);
  if (scaler_) scaler_->update(!is_finite);
  if (!is_finite && skips_nonfinite()) return {.success = false, .grad_norm = scaler_ ? 0 : largest};
  ++num_steps_;
  StepResult result{.grad_norm = norm};
  if (config_.log_num_zeros_in_grad && !ctx.device.is_meta()) result.num_zeros = num_zeros;
  return result;
}

double Optimizer::params_norm(const Context& ctx) {
  norm_.find_largest(ctx, counted_mains_);
  norm_.add_squares(ctx, counted_mains_, false);
  norm_.finish(ctx);
  return read_values<double>(ctx.device, norm_.norms())[1];
}

void Optimizer::gather_params() {
  ddp_.start_param_sync();
  if (!config_.overlap_param_gather) ddp_.finish_param_sync();
}

/// The host waits for the norm before kernels step their part, so that both parts are stepped at the same time.
void Optimizer::update(const Context& ctx) {
  for (OptimizerState& state : states_) state.parameter->value();  // throws where somebody reads it meanwhile
  const std::optional<StepState> state = host_step_.read_state(ctx);
  update_on_device(ctx);
  if (state) host_step_.finish(ctx, *state, host_learning_rates_);
}

void Optimizer::update_on_device(const Context& ctx) {
  for (const RangeTable& table : tables_) {
    launch(ctx, [&](auto& stream) {
      if (config_.optimizer == OptimizerType::kAdam)
        kernels::adam_ranges(stream, {.ranges = table.ranges,
                                      .beta1 = config_.adam_beta1,
                                      .beta2 = config_.adam_beta2,
                                      .epsilon = config_.adam_eps,
                                      .state = &ctx.step});
      else
        kernels::sgd_ranges(stream, {.ranges = table.ranges, .momentum = config_.sgd_momentum, .state = &ctx.step});
    });
  }
}

}  // namespace megatron
