// Small training runs under --profile, and what their trace says.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "megatron/base/host_memory_files.h"
#include "megatron/training/profile/training_profile.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {

/// Times in nanoseconds from the begin of the trace.
struct TimelineEvent {
  std::string name;
  int64_t begin = 0, end = 0;
  std::map<std::string, std::string> args;  // numbers as text
};
/// Events in the order of their begin, outer ones first, by rank and name of the thread.
using Timelines = std::map<int, std::map<std::string, std::vector<TimelineEvent>>>;

struct ProfiledRun {
  Timelines timelines;
  nlohmann::json totals;  // of each rank, in nanoseconds
  std::string report;
};

inline int64_t ns_of(const nlohmann::json& microseconds) {
  return static_cast<int64_t>(std::llround(microseconds.get<double>() * 1e3));
}

/// @throw what a trace that is not as it should be makes nlohmann::json throw
inline ProfiledRun read_trace(const std::string& text) {
  const nlohmann::json json = nlohmann::json::parse(text);
  std::map<std::pair<int, int>, std::string> threads;
  for (const auto& event : json.at("traceEvents"))
    if (event.at("name") == "thread_name") threads[{event.at("pid"), event.at("tid")}] = event.at("args").at("name");
  ProfiledRun run;
  run.totals = json.at("otherData");
  for (const auto& event : json.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const int rank = event.at("pid"), thread = event.at("tid");
    const int64_t begin = ns_of(event.at("ts"));
    TimelineEvent& one = run.timelines[rank][threads.at({rank, thread})].emplace_back();
    one = {.name = event.at("name"), .begin = begin, .end = begin + ns_of(event.at("dur")), .args = {}};
    const nlohmann::json args = event.value("args", nlohmann::json::object());
    for (const auto& [name, value] : args.items())
      one.args[name] = value.is_string() ? value.get<std::string>() : value.dump();
  }
  for (auto& [rank, rows] : run.timelines)
    for (auto& [thread, events] : rows)
      std::ranges::stable_sort(events, [](const TimelineEvent& a, const TimelineEvent& b) {
        return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
      });
  return run;
}

/// Steps 1 to `num_steps` of a trainer as TrainingLoop profiles them.
inline std::string train_profiled(Trainer& trainer, FileSystem& files, int64_t num_steps) {
  std::string report;
  const auto take = [&](const std::string& text) { report += text; };
  TrainingProfile profile(trainer, files, {.on_info = take, .on_warning = take});
  for (int64_t step = 0; step < num_steps; ++step) {
    profile.begin_step();
    {
      const ProfiledRange range(trainer.device().profiler, {.name = "step"});
      train(trainer, step, step + 1);
    }
    profile.end_step();
  }
  profile.finish();
  return report;
}

inline ProfiledRun profiled_run(const std::string& words, int64_t num_steps) {
  HostMemoryFiles files;
  Trainer trainer(small_config(words), {});
  const std::string report = train_profiled(trainer, files, num_steps);
  ProfiledRun run = read_trace(read_file(files, "profile.json"));
  run.report = report;
  return run;
}

}  // namespace megatron::testing
