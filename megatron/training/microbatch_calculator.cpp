#include "megatron/training/microbatch_calculator.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr int64_t kMostIncrements = 1000;
constexpr int64_t kLargestBatch = 2147483647;

// "250B" is 2.5e11; the product is cut to a whole number.
int64_t count_of(std::string_view text, std::string_view entry) {
  double factor = 1;
  if (!text.empty()) {
    const size_t suffix = std::string_view("KMBT").find(static_cast<char>(text.back() & ~0x20));
    if (suffix != std::string_view::npos && ((text.back() | 0x20) >= 'a')) {
      factor = std::pow(1000.0, static_cast<double>(suffix + 1));
      text.remove_suffix(1);
    }
  }
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = error == std::errc{} && end == text.data() + text.size() && !text.empty();
  const double count = number * factor;
  require<ConfigError>(whole && count >= 0 && count < 9e18,
                       "'{}' is not TOKENS:BATCH with numbers such as 768, 250B or 0.5M", entry);
  return static_cast<int64_t>(count);
}

}  // namespace

std::vector<BatchSizeStep> parse_step_batch_size_schedule(std::string_view schedule, int64_t seq_length) {
  require<ConfigError>(seq_length >= 1, "the batch-size schedule needs the sequence length, got {}", seq_length);
  std::vector<BatchSizeStep> steps;
  while (true) {
    const size_t begin = schedule.find_first_not_of(" ,\t\n");
    if (begin == std::string_view::npos) break;
    const size_t end = std::min(schedule.find_first_of(" ,\t\n", begin), schedule.size());
    const std::string_view entry = schedule.substr(begin, end - begin);
    schedule.remove_prefix(end);
    const size_t colon = entry.find(':');
    require<ConfigError>(colon != std::string_view::npos, "'{}' is not TOKENS:BATCH", entry);
    const int64_t first_sample = count_of(entry.substr(0, colon), entry) / seq_length;
    const int64_t batch = count_of(entry.substr(colon + 1), entry);
    require<ConfigError>(batch >= 1 && batch <= kLargestBatch, "'{}' asks for a batch of {}, it must be from 1 to {}",
                         entry, batch, kLargestBatch);
    require<ConfigError>(!steps.empty() || first_sample == 0, "the first threshold must be 0 tokens, '{}' starts later",
                         entry);
    require<ConfigError>(
        steps.empty() || first_sample > steps.back().first_sample,
        "thresholds must increase by whole sequences of {} tokens: '{}' begins at sample {}, the entry before it at {}",
        seq_length, entry, first_sample, steps.empty() ? 0 : steps.back().first_sample);
    steps.push_back({first_sample, batch});
  }
  require<ConfigError>(!steps.empty(), "the batch-size schedule is empty; an example is '0:768 250B:1536'");
  return steps;
}

/// The number of increments is a division of doubles, rounded down, as in Megatron; here it is looked at from the other
/// side: the first sample with so many.
std::vector<BatchSizeStep> ramp_steps(const BatchSizeRamp& ramp, int64_t global_batch_size) {
  const auto [start, increment, samples] = ramp;
  require<ConfigError>(start >= 1 && increment >= 1 && samples >= 1,
                       "START {}, INCREMENT {} and SAMPLES {} must be at least 1", start, increment, samples);
  require<ConfigError>(start < global_batch_size,
                       "START {} must be below the global batch size {}, at which the ramp ends", start,
                       global_batch_size);
  const int64_t growth = global_batch_size - start, num_increments = growth / increment;
  require<ConfigError>(growth % increment == 0,
                       "from START {} to the global batch size {} it is {}, which does not divide by INCREMENT {}; "
                       "START {} does",
                       start, global_batch_size, growth, increment, start + growth % increment);
  require<ConfigError>(num_increments <= kMostIncrements, "{} increments are more than {}: raise INCREMENT {}",
                       num_increments, kMostIncrements, increment);
  const double samples_of_increment = static_cast<double>(samples) / static_cast<double>(num_increments);
  const auto has_increments = [&](int64_t consumed, int64_t wanted) {
    return consumed > samples || static_cast<int64_t>(static_cast<double>(consumed) / samples_of_increment) >= wanted;
  };
  std::vector<BatchSizeStep> steps = {{0, start}};
  for (int64_t i = 1; i <= num_increments; ++i) {
    auto first = static_cast<int64_t>(samples_of_increment * static_cast<double>(i));
    while (first > 0 && has_increments(first - 1, i)) --first;
    while (!has_increments(first, i)) ++first;
    if (steps.back().first_sample == first) steps.pop_back();  // more increments than samples
    steps.push_back({first, start + i * increment});
  }
  return steps;
}

MicrobatchCalculator::MicrobatchCalculator(MicrobatchCalculatorConfig config) : config_(std::move(config)) {
  const int64_t pass = config_.micro_batch_size * config_.data_parallel_size;
  require<ConfigError>(config_.micro_batch_size >= 1 && config_.data_parallel_size >= 1,
                       "micro-batch size {} and data-parallel size {} must be at least 1", config_.micro_batch_size,
                       config_.data_parallel_size);
  require<ConfigError>(!config_.steps.empty(), "no batch size is given");
  for (const BatchSizeStep& step : config_.steps) {
    const int64_t batch = step.global_batch_size;
    require<ConfigError>(batch >= 1, "global batch size {} must be at least 1", batch);
    const bool fits = config_.decrease_batch_size_if_needed ? batch >= pass : batch % pass == 0;
    const int64_t below = std::max(pass, batch / pass * pass);
    require<ConfigError>(fits,
                         "global batch size {} does not divide by micro-batch size {} * data-parallel size {} = {}; "
                         "near ones that do are {} and {}",
                         batch, config_.micro_batch_size, config_.data_parallel_size, pass, below, below + pass);
  }
}

BatchSize MicrobatchCalculator::at(int64_t consumed_samples) const {
  const auto next = std::ranges::upper_bound(config_.steps, consumed_samples, {}, &BatchSizeStep::first_sample);
  const int64_t batch = (next == config_.steps.begin() ? next : next - 1)->global_batch_size;
  const int64_t pass = config_.micro_batch_size * config_.data_parallel_size;
  return {batch / pass, batch, batch / pass * pass};
}

int64_t MicrobatchCalculator::num_iterations(int64_t train_samples) const {
  if (config_.steps.size() == 1) return train_samples / config_.steps.front().global_batch_size;
  int64_t iterations = 0;
  int64_t consumed = 0;
  for (size_t i = 0; i < config_.steps.size() && consumed < train_samples; ++i) {
    const bool is_last = i + 1 == config_.steps.size();
    const int64_t end = is_last ? train_samples : std::min(config_.steps[i + 1].first_sample, train_samples);
    const int64_t batch = at(consumed).running_batch_size;
    if (is_last && config_.drops_partial_batch)
      return iterations + (end - consumed) / config_.steps.back().global_batch_size;
    const int64_t steps = end > consumed ? (end - consumed + batch - 1) / batch : 0;
    iterations += steps;
    consumed += steps * batch;
  }
  return iterations;
}

}  // namespace megatron
