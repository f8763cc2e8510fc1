#include "megatron/optimizer/host_step.h"

#include <algorithm>
#include <source_location>

#include "megatron/core/copy.h"
#include "megatron/kernels/adam.h"
#include "megatron/kernels/sgd.h"
#include "megatron/optimizer/element_numbers.h"
#include "megatron/optimizer/step_operands.h"

namespace megatron {
namespace {

/// Places in staging memory with overlap: one piece is stepped, the weights of another go up, and gradients of two
/// come down, as a copy takes less time than a step.
constexpr size_t kPlaces = 4;
constexpr int64_t kAlignment = 4096;  // of the parts of a place

int64_t aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

template <class T>
T* advanced(T* data, int64_t bytes) {
  return data ? reinterpret_cast<T*>(reinterpret_cast<std::byte*>(data) + bytes) : nullptr;
}
void* advanced(void* data, int64_t bytes) { return advanced(static_cast<std::byte*>(data), bytes); }

}  // namespace

std::vector<bool> states_on_host(const std::vector<OptimizerState>& states, const std::vector<ParamGroup>& groups,
                                 double fraction) {
  int64_t total = 0, on_host = 0;
  for (const OptimizerState& state : states) total += state.end - state.begin;
  std::vector<bool> chosen(states.size());
  for (const ParamGroup& group : groups)
    for (const size_t i : group.members) {
      if (static_cast<double>(on_host) >= fraction * static_cast<double>(total)) return chosen;
      chosen[i] = true;
      on_host += states[i].end - states[i].begin;
    }
  return chosen;
}

void HostStep::add(const Context& ctx, OptimizerState& state, const ParamGroupSchedule& schedule, size_t group) {
  const StepOperands all(state);
  const View weights = state.steps_weights() ? all.parameter : all.model_weight;
  const int64_t most = config_.host_piece_elements;
  for (int64_t begin = 0; begin < all.size; begin += most) {
    const int64_t size = std::min(most, all.size - begin);
    const auto at = [&](const View& view) { return advanced(view.data, begin * size_of(view.dtype)); };
    kernels::OptimizerRange range{.parameter = state.steps_weights() ? nullptr : at(all.parameter),
                                  .remainder = advanced(all.remainder.data, 2 * begin),
                                  .first_moment = at(all.first_moment),
                                  .second_moment = at(all.second_moment),
                                  .weight_decay_multiplier = schedule.wd_mult,
                                  .size = size};
    if (rounds_at_random(state))
      range.rounding = {.key = ctx.key.at("rounding").at(state.parameter->name()),
                        .numbers = element_numbers_of(*state.parameter, state.begin + begin)};
    pieces_.push_back({.gradient = static_cast<const std::byte*>(at(all.gradient)),
                       .weight = static_cast<std::byte*>(at(weights)),
                       .gradient_bytes = size * size_of(all.gradient.dtype),
                       .weight_bytes = size * size_of(weights.dtype),
                       .reads_weight = state.steps_weights() || all.has_remainder,
                       .group = group,
                       .range = range,
                       .dtypes = all.dtypes()});
  }
}

void HostStep::prepare(const Context& ctx) {
  int64_t gradient = 0, weight = 0;
  for (const Piece& piece : pieces_) {
    gradient = std::max(gradient, aligned(piece.gradient_bytes));
    weight = std::max(weight, aligned(piece.weight_bytes));
  }
  places_.resize(std::min(config_.overlap_cpu_optimizer_d2h_h2d ? kPlaces : 1, std::max<size_t>(pieces_.size(), 1)));
  const int64_t bytes = static_cast<int64_t>(places_.size()) * (gradient + weight);
  if (bytes == 0) return;
  staging_ = ctx.empty_on_host("optimizer_staging", {bytes}, DType::kUInt8, MemoryUse::kOptimizer);
  auto* next = static_cast<std::byte*>(staging_.view().data);
  for (Place& place : places_) {
    place.gradient = next;
    place.weight = advanced(next, gradient);
    next = advanced(next, gradient + weight);
  }
}

void HostStep::fetch(size_t number) {
  const Piece& piece = pieces_[number];
  Place& place = place_of(number);
  CopyQueue& down = device_.copies_to_host();
  down.copy(piece.gradient, place.gradient, piece.gradient_bytes);
  if (piece.reads_weight) down.copy(piece.weight, place.weight, piece.weight_bytes);
  place.arrived = down.mark();
}

void HostStep::begin() {
  if (is_empty()) return;
  device_.copies_to_host().wait_for_kernels();
  for (size_t i = 0; i < places_.size(); ++i) fetch(i);
}

std::optional<StepState> HostStep::read_state(const Context& ctx) const {
  if (is_empty()) return std::nullopt;
  return read_value(ctx.device, &ctx.step);
}

void HostStep::finish(const Context& ctx, const StepState& state, std::span<const double> learning_rates) {
  if (state.found_inf != 0) return;
  CopyQueue &down = device_.copies_to_host(), &up = device_.copies_to_device();
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const size_t next = i + places_.size() - 1;  // takes the place of the piece before this one
    if (i > 0 && next < pieces_.size()) {
      up.wait(place_of(next).sent);
      fetch(next);
    }
    Place& place = place_of(i);
    down.wait(place.arrived);
    step(ctx, state, pieces_[i], place, learning_rates[pieces_[i].group]);
    up.copy(place.weight, pieces_[i].weight, pieces_[i].weight_bytes);
    place.sent = up.mark();
  }
  up.hold_kernels(up.mark());
}

void HostStep::step(const Context& ctx, const StepState& state, const Piece& piece, const Place& place,
                    double learning_rate) {
  if (ctx.device.is_meta()) return;
  const ProfiledOp op(ctx.device.profiler, ctx.place, {.name = "host_step"}, std::source_location::current());
  kernels::OptimizerRange range = piece.range;
  range.gradient = place.gradient;
  range.learning_rate = &learning_rate;
  const bool steps_weights = !range.parameter && !range.remainder;
  (steps_weights ? range.parameter : range.model_weight) = place.weight;
  const kernels::OptimizerRanges ranges{.table = &range, .num_ranges = 1, .dtypes = piece.dtypes};
  const CpuStream& stream = ctx.device.cpu_stream();
  if (config_.optimizer == OptimizerType::kAdam)
    kernels::adam_ranges(stream, {.ranges = ranges,
                                  .beta1 = config_.adam_beta1,
                                  .beta2 = config_.adam_beta2,
                                  .epsilon = config_.adam_eps,
                                  .state = &state});
  else
    kernels::sgd_ranges(stream, {.ranges = ranges, .momentum = config_.sgd_momentum, .state = &state});
}

}  // namespace megatron
