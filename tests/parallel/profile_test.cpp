// Profiles of several ranks: one file, in which the schedule can be seen.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "megatron/pipeline_parallel/pipeline_schedule.h"
#include "tests/parallel/layout_run.h"
#include "tests/training/profile/profiled_run.h"

namespace megatron::testing {
namespace {

const std::string kProfile = " --profile --profile-step-start 1 --profile-step-end 2";

ProfiledRun profile_layout(const std::string& words, int num_ranks) {
  HostMemoryFiles files;
  std::string report;
  run_layout(words, num_ranks, [&](Trainer& trainer) {
    const std::string own = train_profiled(trainer, files, 2);
    if (trainer.groups().world.rank() == 0) report = own;
  });
  for (const DirectoryEntry& entry : files.list("."))
    EXPECT_TRUE(entry.name == "profile.json" || entry.name == "profile.json.svg") << entry.name << " is left";
  ProfiledRun run = read_trace(read_file(files, "profile.json"));
  run.report = report;
  return run;
}

/// "F0 F1 BW0": actions of a schedule that compute, chunk 0 only.
std::string computing(const Schedule& schedule) {
  std::string text;
  for (const Action& a : schedule)
    if (is_compute(a.kind)) text += fmt::format("{}{} ", name_of(a.kind), a.micro_batch);
  return text;
}

std::string computing(const std::vector<TimelineEvent>& host) {
  std::string text;
  for (const TimelineEvent& event : host) {
    const auto action = event.args.find("action");
    if (action != event.args.end() && action->second.find('_') == std::string::npos) text += event.name + " ";
  }
  return text;
}

const TimelineEvent& find(const ProfiledRun& run, int rank, const std::string& name) {
  const auto& host = run.timelines.at(rank).at("host");
  const auto found = std::ranges::find(host, name, &TimelineEvent::name);
  EXPECT_NE(found, host.end()) << name << " of rank " << rank;
  return *found;
}

void expect_nested(const ProfiledRun& run) {
  for (const auto& [rank, rows] : run.timelines)
    for (const auto& [thread, events] : rows) {
      std::vector<TimelineEvent> open;
      for (const TimelineEvent& event : events) {
        EXPECT_GE(event.end, event.begin) << event.name;
        while (!open.empty() && open.back().end <= event.begin) open.pop_back();
        if (!open.empty()) {
          EXPECT_LE(event.end, open.back().end) << event.name << " in " << open.back().name << ", " << thread;
        }
        open.push_back(event);
      }
    }
}

TEST(ProfileOfRanks, HasTheActionsOfTheScheduleInItsOrder) {
  struct Case {
    std::string words;
    ScheduleKind kind;
  };
  for (const Case& c : {Case{"", ScheduleKind::kOneFOneB}, Case{" --pipeline-schedule zb-h1", ScheduleKind::kZbH1}}) {
    const ProfiledRun run = profile_layout(
        gpt2_like("--pipeline-model-parallel-size 2 --num-layers 4 --micro-batch-size 1" + kProfile + c.words), 2);
    const auto schedules = make_schedules({.kind = c.kind, .num_ranks = 2, .num_micro_batches = 4});
    for (int rank = 0; rank < 2; ++rank)
      for (const char* row : {"host", "schedule"})
        EXPECT_EQ(computing(run.timelines.at(rank).at(row)), computing(schedules[static_cast<size_t>(rank)]))
            << row << " of rank " << rank << c.words;
    expect_nested(run);
    EXPECT_EQ(run.timelines.at(0).at("host").front().name, "step 2");
    EXPECT_THAT(run.report, ::testing::HasSubstr("drawn: profile.json.svg"));
  }
}

TEST(ProfileOfRanks, ClocksOfRanksAgree) {
  const ProfiledRun run =
      profile_layout(gpt2_like("--pipeline-model-parallel-size 2 --num-layers 4 --micro-batch-size 1" + kProfile), 2);
  // Offsets between the clocks of ranks are read twice within some microseconds of each other.
  constexpr int64_t kSlackNs = 100'000;
  for (const char* micro_batch : {"0", "1", "2", "3"}) {
    const std::string number(micro_batch);
    EXPECT_GE(find(run, 1, "F" + number).end + kSlackNs, find(run, 0, "send_forward" + number).begin);
    EXPECT_GE(find(run, 0, "BW" + number).end + kSlackNs, find(run, 1, "send_backward" + number).begin);
  }
}

TEST(ProfileOfRanks, HasExchangesOfEachGroupWithTheirBytes) {
  const ProfiledRun run =
      profile_layout(gpt2_like("--tensor-model-parallel-size 2 --micro-batch-size 1 --num-layers 2" + kProfile), 4);
  int64_t waited = 0;  // the rank that comes last to an exchange does not wait
  for (int rank = 0; rank < 4; ++rank) {
    const auto& rows = run.timelines.at(rank);
    ASSERT_TRUE(rows.contains("comm tp")) << rank;
    int64_t num_sums = 0;
    for (const TimelineEvent& event : rows.at("comm tp")) {
      EXPECT_EQ(event.args.at("group"), "tp");
      num_sums += event.name.starts_with("all_reduce");
    }
    EXPECT_GT(num_sums, 2 * 2 * 2) << "two a layer forward, two backward, for each of two micro-batches";
    waited += run.totals.at(fmt::format("rank {}, ns", rank)).at("communication").get<int64_t>();
  }
  EXPECT_GT(waited, 0);
  expect_nested(run);
}

TEST(ProfileOfRanks, HasTheChosenRanksOnly) {
  const ProfiledRun run =
      profile_layout(gpt2_like("--micro-batch-size 1 --global-batch-size 3 --profile-ranks 2 1" + kProfile), 3);
  EXPECT_EQ(run.timelines.size(), 2u);
  EXPECT_TRUE(run.timelines.contains(1) && run.timelines.contains(2));
  EXPECT_THAT(run.report, ::testing::HasSubstr("rank 1"));
}

TEST(ProfileOfRanks, ChangesNoBit) {
  const std::string words =
      gpt2_like("--pipeline-model-parallel-size 2 --num-layers 4 --micro-batch-size 1 --use-distributed-optimizer");
  HostMemoryFiles files;
  std::vector<double> weights(4), profiled(4);
  const auto sum = [](Trainer& trainer) {
    const std::vector<double> all = weights_of(trainer);
    return std::accumulate(all.begin(), all.end(), 0.0);
  };
  run_layout(words, 4, [&](Trainer& trainer) {
    train(trainer, 0, 2);
    weights[static_cast<size_t>(trainer.groups().world.rank())] = sum(trainer);
  });
  run_layout(words + " --profile --profile-step-start 0 --profile-step-end 2", 4, [&](Trainer& trainer) {
    train_profiled(trainer, files, 2);
    profiled[static_cast<size_t>(trainer.groups().world.rank())] = sum(trainer);
  });
  EXPECT_EQ(profiled, weights);
}

}  // namespace
}  // namespace megatron::testing
