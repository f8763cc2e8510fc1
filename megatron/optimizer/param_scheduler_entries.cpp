#include "megatron/optimizer/param_scheduler_entries.h"

#include <cmath>
#include <initializer_list>

#include "megatron/base/error.h"

namespace megatron {
namespace {

using Entry = ParamSchedulerEntries::mapped_type;

const Entry* find(const ParamSchedulerEntries& entries, std::initializer_list<std::string_view> names) {
  for (std::string_view name : names)
    if (const auto found = entries.find(name); found != entries.end()) return &found->second;
  return nullptr;
}
const Entry& need(const ParamSchedulerEntries& entries, std::initializer_list<std::string_view> names) {
  const Entry* entry = find(entries, names);
  require<CheckpointError>(entry != nullptr, "the checkpoint's opt_param_scheduler has no {}", *names.begin());
  return *entry;
}

double number(const Entry& entry) {
  if (const auto* whole = std::get_if<int64_t>(&entry)) return static_cast<double>(*whole);
  if (const auto* real = std::get_if<double>(&entry)) return *real;
  throw CheckpointError(
      fmt::format("the checkpoint's opt_param_scheduler holds '{}' for a number", std::get<std::string>(entry)));
}
int64_t whole(const Entry& entry) {
  const double value = number(entry);
  require<CheckpointError>(value == std::floor(value), "the checkpoint's opt_param_scheduler holds {} for a count",
                           value);
  return static_cast<int64_t>(value);
}
template <class E>
E enumerator(const Entry& entry) {
  const auto* text = std::get_if<std::string>(&entry);
  if (text != nullptr)
    for (const auto& [value, name] : names_of_enum(E{}))
      if (name == *text) return value;
  throw CheckpointError(fmt::format("the checkpoint's opt_param_scheduler holds an unknown style {}",
                                    text != nullptr ? *text : fmt::format("{}", number(entry))));
}
template <class E>
std::string style_name(E value) {
  for (const auto& [enumerator, name] : names_of_enum(E{}))
    if (enumerator == value) return std::string(name);
  throw InternalError("an enumerator has no name");
}

}  // namespace

ParamSchedulerEntries to_entries(const ParamSchedulerState& state) {
  ParamSchedulerEntries entries{{"max_lr", state.max_lr},
                                {"lr_warmup_steps", state.lr_warmup_steps},
                                {"num_steps", state.num_steps},
                                {"lr_decay_style", style_name(state.lr_decay_style)},
                                {"lr_decay_steps", state.lr_decay_steps},
                                {"min_lr", state.min_lr}};
  // A warm-up of whole samples is an integer, as Megatron writes it.
  if (state.lr_warmup_steps == std::floor(state.lr_warmup_steps))
    entries["lr_warmup_steps"] = static_cast<int64_t>(state.lr_warmup_steps);
  if (state.start_wd) entries["start_wd"] = *state.start_wd;
  if (state.end_wd) entries["end_wd"] = *state.end_wd;
  if (state.wd_incr_style) entries["wd_incr_style"] = style_name(*state.wd_incr_style);
  if (state.wd_incr_steps) entries["wd_incr_steps"] = *state.wd_incr_steps;
  return entries;
}

ParamSchedulerState param_scheduler_state_of(const ParamSchedulerEntries& entries) {
  ParamSchedulerState state{
      .max_lr = number(need(entries, {"max_lr", "start_lr"})),
      .lr_warmup_steps = number(need(entries, {"lr_warmup_steps", "warmup_iter", "warmup_steps"})),
      .num_steps = whole(need(entries, {"num_steps", "num_iters"})),
      .lr_decay_style = enumerator<LrDecayStyle>(need(entries, {"lr_decay_style", "decay_style"})),
      .lr_decay_steps = whole(need(entries, {"lr_decay_steps", "end_iter", "decay_steps"})),
      .min_lr = number(need(entries, {"min_lr"})),
      .start_wd = std::nullopt,
      .end_wd = std::nullopt,
      .wd_incr_style = std::nullopt,
      .wd_incr_steps = std::nullopt};
  if (const Entry* entry = find(entries, {"start_wd"})) state.start_wd = number(*entry);
  if (const Entry* entry = find(entries, {"end_wd"})) state.end_wd = number(*entry);
  if (const Entry* entry = find(entries, {"wd_incr_style"}))
    state.wd_incr_style = enumerator<WeightDecayIncrStyle>(*entry);
  if (const Entry* entry = find(entries, {"wd_incr_steps"})) state.wd_incr_steps = whole(*entry);
  return state;
}

}  // namespace megatron
