// The text that is printed at start: the arguments, and the differences of this run from Megatron.
#include <algorithm>
#include <cctype>
#include <iterator>
#include <utility>
#include <vector>

#include "megatron/base/word_list.h"
#include "megatron/training/config/differences.h"
#include "megatron/training/config/fields.h"
#include "megatron/training/config/schedules.h"

namespace megatron {
namespace {

constexpr size_t kNameWidth = 48;  // name and dots, Megatron's

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

// A switch's spelling, else the flag with its value.
std::string as_given(const Field& field, const FieldValue& value) {
  if (const auto* on = std::get_if<bool>(&value)) return *on ? field.flags.front() : field.off_flags.front();
  const auto* words = std::get_if<std::vector<std::string>>(&value);
  return field.spelling() + " " + (words != nullptr ? joined(*words, " ") : python_text(value));
}

// Those that share a reason in one sentence.
std::vector<std::string> flags_without_effect(const PretrainConfig& config) {
  PretrainConfig given = config;
  PretrainConfig defaults = default_config(config.family);
  FieldTable default_table = describe(defaults);
  std::vector<std::pair<std::string, std::vector<std::string>>> flags_by_reason;
  describe(given).for_each([&](const Field& field) {
    if (field.no_effect.empty()) return;
    const FieldValue value = field.get();
    if (!config.given.contains(field.name) || value == default_table.find(field.name)->get()) return;
    auto found = std::ranges::find(flags_by_reason, field.no_effect, [](const auto& entry) { return entry.first; });
    if (found == flags_by_reason.end()) found = flags_by_reason.insert(found, {field.no_effect, {}});
    found->second.push_back(as_given(field, value));
  });
  std::vector<std::string> texts;
  texts.reserve(flags_by_reason.size());
  for (const auto& [reason, flags] : flags_by_reason)
    texts.push_back(
        fmt::format("{} {} no effect here: {}", joined(flags, ", "), flags.size() > 1 ? "have" : "has", reason));
  return texts;
}

// Spellings of other versions and scripts, with the flags that they stand for.
std::vector<std::string> aliases_given(const PretrainConfig& config) {
  PretrainConfig copy = config;
  std::vector<std::string> texts;
  describe(copy).for_each([&](const Field& field) {
    const auto given = config.given.find(field.name);
    if (given != config.given.end() && std::ranges::find(field.aliases, given->second) != field.aliases.end())
      texts.push_back(fmt::format("{} is taken as {}", given->second, field.spelling()));
  });
  return texts;
}

// Warns if growing batches use up the learning rate's schedule, whose length counts the smallest batch, before the end.
std::optional<std::string> early_end_of_decay(const PretrainConfig& config) {
  const TrainingConfig& training = config.training;
  const bool counts_iterations =
      training.step_batch_size_schedule && training.train_iters && !training.train_samples && config.optimizer.lr;
  if (!counts_iterations || config.scheduler.lr_decay_style == LrDecayStyle::kConstant) return std::nullopt;
  const ParamSchedulerConfig schedule = param_scheduler_config_of(config);
  const int64_t end = microbatch_calculator_of(config).num_iterations(schedule.lr_decay_steps);
  if (end >= *training.train_iters) return std::nullopt;
  return fmt::format(
      "the learning rate is at its minimum of {} after iteration {} of {}: its schedule has {} samples, "
      "{} for an iteration, and --step-batch-size-schedule gives larger batches. Give --train-samples",
      schedule.min_lr, end, *training.train_iters, schedule.lr_decay_steps, *training.global_batch_size);
}

// Warns of steps to skip that never come: their numbers may be wrong or those of another run.
std::optional<std::string> skipped_beyond_the_end(const TrainingConfig& training) {
  if (!training.train_iters) return std::nullopt;
  std::vector<std::string> beyond;
  for (const int64_t iteration : training.iterations_to_skip)
    if (iteration > *training.train_iters) beyond.push_back(std::to_string(iteration));
  if (beyond.empty()) return std::nullopt;
  return fmt::format("--iterations-to-skip {} has no effect: the run ends at iteration {}", joined(beyond, " "),
                     *training.train_iters);
}

}  // namespace

std::map<std::string, std::string> arguments_texts(const PretrainConfig& config) {
  PretrainConfig copy = config;
  std::map<std::string, std::string> texts;
  describe(copy).for_each([&](const Field& field) { texts[field.name] = python_text(field.get()); });
  return texts;
}

std::string arguments_block(const PretrainConfig& config) {
  std::vector<std::string> lines;
  const std::map<std::string, std::string> defaults = arguments_texts(default_config(config.family));
  size_t num_defaults = 0;
  for (const auto& [name, value] : arguments_texts(config)) {
    if (!config.logging.print_config && !config.given.contains(name) && value == defaults.at(name)) {
      ++num_defaults;
      continue;
    }
    const size_t dots = kNameWidth - std::min(kNameWidth, name.size());
    lines.push_back(fmt::format("  {} {} {}", name, std::string(dots, '.'), value));
  }
  std::sort(lines.begin(), lines.end(), [](const auto& a, const auto& b) { return lower(a) < lower(b); });
  if (num_defaults > 0)
    lines.push_back(fmt::format("  {} other arguments have their defaults; --print-config prints all", num_defaults));
  return fmt::format("{0:-<24} arguments {0:-<24}\n{1}\n{0:-<20} end of arguments {0:-<21}\n", "", joined(lines, "\n"));
}

std::string notes_block(const PretrainConfig& config) {
  std::string notes;
  const auto note = [&](std::string_view text) { fmt::format_to(std::back_inserter(notes), "  * {}\n", text); };
  for (const Difference& difference : differences(config))
    if (difference.in_force) note(fmt::format("{}: {}", difference.topic, difference.ours));
  for (const std::string& text : idle_settings(config)) note(text);
  for (const std::string& text : aliases_given(config)) note(text);
  if (const auto text = early_end_of_decay(config)) note(*text);
  if (const auto text = skipped_beyond_the_end(config.training)) note(*text);

  for (const std::string& text : flags_without_effect(config)) note(text);
  return notes.empty() ? notes : "Where this run departs from Megatron-LM, and flags without effect:\n" + notes;
}

}  // namespace megatron
