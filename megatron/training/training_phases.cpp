#include "megatron/training/training_phases.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "megatron/base/error.h"

namespace megatron {

std::vector<int64_t> phase_transitions_of(const TrainingConfig& training) {
  std::vector<int64_t> iterations;
  if (!training.phase_transition_iterations) return iterations;
  const std::string& text = *training.phase_transition_iterations;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string_view word = std::string_view(text).substr(begin, end - begin);
    while (word.starts_with(' ')) word.remove_prefix(1);
    while (word.ends_with(' ')) word.remove_suffix(1);
    int64_t iteration = 0;
    const auto [rest, error] = std::from_chars(word.data(), word.data() + word.size(), iteration);
    require<ConfigError>(error == std::errc() && rest == word.data() + word.size() && iteration > 0,
                         "--phase-transition-iterations {}: '{}' is not a positive number. Give iterations with commas "
                         "between them, such as 1000,2000",
                         text, word);
    iterations.push_back(iteration);
    begin = end + 1;
  }
  std::ranges::sort(iterations);
  const auto twice = std::ranges::adjacent_find(iterations);
  require<ConfigError>(twice == iterations.end(), "--phase-transition-iterations {}: {} comes twice", text,
                       twice == iterations.end() ? 0 : *twice);
  return iterations;
}

std::optional<TrainingPhase> phase_after(const TrainingConfig& training, int64_t iteration) {
  if (!training.phase_transition_iterations) return std::nullopt;
  const int64_t batch = training.global_batch_size.value();
  TrainingPhase phase{.begin = 0, .end = training.train_samples.value_or(training.train_iters.value_or(0) * batch)};
  for (const int64_t transition : phase_transitions_of(training)) {
    if (transition <= iteration)
      phase.begin = transition * batch;
    else
      phase.end = std::min(phase.end, transition * batch);
  }
  return phase;
}

}  // namespace megatron
