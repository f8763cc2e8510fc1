// Runs of pretrain() and what they print and log.
#pragma once

#include <gmock/gmock.h>

#include <atomic>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "megatron/comm/threads/rank_threads.h"
#include "megatron/training/pretrain.h"
#include "megatron/training/training_data.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {

/// Keeps what is printed, and calls `on_update` after each step.
class Listener final : public Progress {
 public:
  void begin(const ProgressTask&) override {}
  void update(int64_t done, std::string_view) override {
    if (on_update) on_update(done);
  }
  void end() override {}
  void message(std::string_view line) override { lines.append(line).append("\n"); }

  std::function<void(int64_t done)> on_update;
  std::string lines;
};

/// A whole run; `signal` is what a signal handler would have set.
inline void run(const std::string& words, int num_ranks, Listener& listener, const std::atomic<int>& signal,
                const RankThreadHooks& hooks = {}, const ExternalData* external = nullptr) {
  PosixFileSystem files;
  const PretrainConfig config = small_config(words, num_ranks);
  pretrain(config, *tokenizer_of(config.tokenizer),
           {.files = files,
            .progress = listener,
            .signal = signal,
            .signal_name = "SIGTERM",
            .host = "host",
            .process_id = 1,
            .job_id = "",
            .num_threads = 1,
            .world = nullptr,
            .rank_hooks = hooks,
            .external_data = external});
}

/// "lm_loss" of each iteration that the file has.
inline std::map<int64_t, double> losses_in(const std::string& path) {
  std::map<int64_t, double> losses;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const auto record = nlohmann::json::parse(line);
    if (record.contains("lm_loss") && record.contains("iteration")) losses[record["iteration"]] = record["lm_loss"];
  }
  return losses;
}

/// Matches pairs of an iteration and its loss.
MATCHER(SameIterationAndLoss, "") {
  const auto& [actual, expected] = arg;
  return actual.first == expected.first && std::abs(actual.second - expected.second) < 1e-11;
}

}  // namespace megatron::testing
