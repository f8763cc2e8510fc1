// Whole runs on several ranks, and how they end together.
#include "megatron/training/pretrain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "megatron/comm/gpu_ranks.h"
#include "megatron/comm/rank_failure.h"
#include "megatron/comm/threads/rank_threads.h"
#include "megatron/training/training_data.h"
#include "tests/parallel/whole_run.h"
#include "tests/testing/scratch_directory.h"
#include "tests/training/profile/profiled_run.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

using ::testing::HasSubstr;

TEST(Pretrain, ASignalEndsAllRanksAfterTheSameStepWithACheckpoint) {
  const ScratchDirectory directory;
  Listener listener;
  std::atomic<int> signal = 0;
  listener.on_update = [&](int64_t done) {  // between two steps of rank 0; other ranks are anywhere
    if (done == 3) signal = SIGTERM;
  };
  run(gpt2_like("--exit-signal-handler --pipeline-model-parallel-size 2 --num-layers 4 --micro-batch-size 1 --save " +
                directory.path() + " --save-interval 1000"),
      4, listener, signal);
  EXPECT_THAT(listener.lines, HasSubstr("exiting program after receiving SIGTERM"));
  EXPECT_THAT(listener.lines, HasSubstr("successfully saved checkpoint"));
  PosixFileSystem files;
  const std::string tracker = read_file(files, directory.file("latest_checkpointed_iteration.txt"));
  EXPECT_THAT(tracker, ::testing::AnyOf("3", "4"));
}

/// The numbers of "mtp_N loss" in the lines of a log.
std::vector<double> further_losses(const std::string& lines) {
  const std::regex form(R"(mtp_(\d) loss: ([0-9.E+-]+) \|)");
  std::vector<double> losses;
  for (std::sregex_iterator match(lines.begin(), lines.end(), form), end; match != end; ++match) {
    EXPECT_EQ((*match)[1], std::to_string(losses.size() % 2 + 1));
    losses.push_back(std::stod((*match)[2]));
  }
  return losses;
}

TEST(Pretrain, TheLogHasTheLossOfEachFurtherTokenOnAnyLayout) {
  const std::atomic<int> signal = 0;
  const std::string words = gpt2_like(
      "--fp64 --position-embedding-type rope --mtp-num-layers 2 --num-layers 2 --train-iters 4 --log-interval 2 "
      "--micro-batch-size 1 ");
  Listener one, several;
  run(words, 1, one, signal);
  run(words + "--pipeline-model-parallel-size 2 --tensor-model-parallel-size 2", 8, several, signal);
  const std::vector<double> expected = further_losses(one.lines);
  ASSERT_EQ(expected.size(), 6U) << one.lines;  // after iterations 1, 2 and 4
  EXPECT_GT(expected[0], 3) << "untrained, the logarithm of the vocabulary is 4.1";
  EXPECT_LT(expected[4], expected[0]);
  const std::vector<double> actual = further_losses(several.lines);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 2e-6 * expected[i]);  // seven digits
}

TEST(Pretrain, GoesOnWithTheNextSamplesInAnyOtherLayout) {
  const ScratchDirectory directory;
  const std::string model = gpt2_like(
      "--fp64 --num-layers 4 --global-batch-size 12 --micro-batch-size 1 --train-iters 6 --lr 1e-3 --eval-iters 0 "
      "--log-interval 1 ");
  const std::atomic<int> signal = 0;
  Listener listener;
  run(model + "--log-jsonl " + directory.file("whole"), 1, listener, signal);
  const std::map<int64_t, double> whole = losses_in(directory.file("whole"));
  ASSERT_EQ(whole.size(), 6);
  std::map<int64_t, double> expected(whole.find(4), whole.end());
  const std::vector<std::pair<std::string, int>> layouts = {
      {"", 3},
      {"--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather ", 4},
      {"--tensor-model-parallel-size 4 --sequence-parallel ", 4},
      {"--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 ", 6},
      {"--tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --pipeline-schedule zb-v ", 4}};
  for (size_t i = 0; i < layouts.size(); ++i) {
    const std::string folder = directory.file(fmt::format("checkpoint{}", i)),
                      log = directory.file(fmt::format("log{}", i));
    run(model + layouts[i].first + "--exit-interval 3 --save-interval 3 --save " + folder, layouts[i].second, listener,
        signal);
    const auto& [words, num_ranks] = layouts[(i + 1) % layouts.size()];
    run(model + words + "--load " + folder + " --log-jsonl " + log, num_ranks, listener, signal);
    EXPECT_THAT(losses_in(log), ::testing::Pointwise(SameIterationAndLoss(), expected))
        << layouts[i].first << "to " << words;
  }
}

TEST(Pretrain, OnlyTheRankThatWritesLogsMakesFilesAndFoldersForThem) {
  const ScratchDirectory directory;
  ThreadWorld ranks(2, std::chrono::minutes(1));
  const std::atomic<int> signal = 0;
  run_rank_threads(ranks, [&](World& world) {  // as processes of a launcher: each has files of its own
    const std::string own = directory.file(fmt::format("host{}", world.rank()));
    PosixFileSystem files;
    files.create_directories(own);
    Listener listener;
    const PretrainConfig config = small_config(gpt2_like("--train-iters 1 --eval-iters 0 --log-jsonl " + own +
                                                         "/run.jsonl "
                                                         "--tensorboard-dir " +
                                                         own + "/events --micro-batch-size 1"),
                                               2);
    pretrain(config, *tokenizer_of(config.tokenizer),
             {.files = files,
              .progress = listener,
              .signal = signal,
              .signal_name = "SIGTERM",
              .host = "host",
              .world = &world});
  });
  PosixFileSystem files;
  for (const char* name : {"/run.jsonl", "/events"}) {
    EXPECT_TRUE(files.exists(directory.file("host0") + name)) << name;
    EXPECT_FALSE(files.exists(directory.file("host1") + name)) << name;
  }
}

/// Flips a bit of each cached order of samples in the folder.
void damage_orders(const std::string& folder) {
  PosixFileSystem files;
  for (const DirectoryEntry& entry : files.list(folder)) {
    if (!entry.name.ends_with("shuffle_index.npy")) continue;
    const std::string path = join_path(folder, entry.name);
    std::string bytes = read_file(files, path);
    bytes.back() ^= 1;
    replace_file(files, path, bytes);
  }
}

TEST(Pretrain, TheFirstRankOfEachHostAloneChecksCachedIndices) {
  const ScratchDirectory directory;
  const std::atomic<int> signal = 0;
  std::array<Listener, 3> listeners;  // of ranks with a cache each; the last one has the host of the second
  const auto train = [&] {
    ThreadWorld ranks(3, std::chrono::minutes(1));
    run_rank_threads(ranks, [&](World& world) {
      PosixFileSystem files;
      const PretrainConfig config =
          small_config(gpt2_like(fmt::format("--train-iters 1 --eval-iters 0 --micro-batch-size 1 --global-batch-size 6"
                                             " --data-cache-path {}{}",
                                             directory.file("rank"), world.rank())),
                       world.size());
      pretrain(config, *tokenizer_of(config.tokenizer),
               {.files = files,
                .progress = listeners[static_cast<size_t>(world.rank())],
                .signal = signal,
                .host = "host",
                .world = &world,
                .is_first_of_host = world.rank() < 2});
    });
  };
  train();
  for (int rank = 0; rank < 3; ++rank) damage_orders(directory.file("rank") + std::to_string(rank));
  try {
    train();
  } catch (const RankFailure&) {  // the last rank has other samples, as no cache of one host differs between its ranks
  }
  constexpr const char* kBuiltAgain = "are built again";
  EXPECT_THAT(listeners[0].lines, HasSubstr(kBuiltAgain));
  EXPECT_THAT(listeners[1].lines, HasSubstr(kBuiltAgain));
  EXPECT_THAT(listeners[2].lines, ::testing::Not(HasSubstr(kBuiltAgain)));
}

/// Ranks of which the last one's GPU does not reach the others.
class OneOutOfReach final : public GpuRanks {
 public:
  explicit OneOutOfReach(const World& world) : is_last_(world.rank() == world.size() - 1) {}
  std::string transports() const override {
    return is_last_ ? "rows of tp: NCCL, no copies between GPUs: it is alone" : "rows of tp: copies between GPUs";
  }
  void set_compute_stream(CUstream_st*) override {}
  void connect(const Connections&) override {}
  void begin_step() override {}
  void throw_if_failed() const override {}
  void end_step() noexcept override {}
  const RankPlaces& places() const override { return places_; }
  void begin_recording() override {}
  void end_recording() noexcept override {}
  void begin_graph_step(std::string_view, std::string_view) override {}
  void launch_graph(std::string_view, const std::function<void()>&) override {}

 private:
  bool is_last_;
  RankPlaces places_;
};

TEST(Pretrain, TheFirstRankSaysOnceByWhatAllRanksSendAndWhyNotByCopies) {
  ThreadWorld ranks(3, std::chrono::minutes(1));
  const std::atomic<int> signal = 0;
  const std::string expected =
      "rows of tp: NCCL, no copies between GPUs: it is alone (rank 2)\nrows of tp: copies between GPUs (ranks 0, 1)";
  run_rank_threads(ranks, [&](World& world) {
    PosixFileSystem files;
    Listener listener;
    std::vector<std::string> heard;
    OneOutOfReach gpu_ranks(world);
    const PretrainConfig config = small_config(
        gpt2_like("--train-iters 2 --eval-iters 0 --micro-batch-size 1 --global-batch-size 6"), world.size());
    pretrain(config, *tokenizer_of(config.tokenizer),
             {.files = files,
              .progress = listener,
              .signal = signal,
              .signal_name = "SIGTERM",
              .host = "host",
              .world = &world,
              .on_transports = [&](const std::string& text) { heard.push_back(text); },
              .gpu_ranks = &gpu_ranks});
    const bool is_first = world.rank() == 0;
    EXPECT_EQ(heard, is_first ? std::vector{expected} : std::vector<std::string>());
    EXPECT_EQ(listener.lines.find(expected) != std::string::npos, is_first) << listener.lines;
    EXPECT_EQ(listener.lines.find("rows of tp"), listener.lines.rfind("rows of tp: NCCL"));
  });
}

TEST(Pretrain, MemoryLinesSayWhatAllProcessesUseOfTheDeviceIfAsked) {
  const std::atomic<int> signal = 0;
  const auto megabytes_in_use = [&](const std::string& words) {
    Listener listener;
    run(gpt2_like("--train-iters 1 --eval-iters 0 --tensor-model-parallel-size 2 " + words), 2, listener, signal);
    std::vector<double> megabytes;
    const std::regex piece(R"(memory \(MB\) \| allocated: ([0-9.]+) .* total device memory used: ([0-9.]+))");
    for (std::sregex_iterator found(listener.lines.begin(), listener.lines.end(), piece), end; found != end; ++found) {
      megabytes.push_back(std::stod((*found)[2]));
      EXPECT_GT(megabytes.back(), std::stod((*found)[1]));
    }
    return megabytes;
  };
  EXPECT_EQ(megabytes_in_use("--log-device-memory-used").size(), 2u) << "a line of each rank";
  EXPECT_THAT(megabytes_in_use(""), ::testing::IsEmpty());
}

TEST(Pretrain, ACeilingThatTrainingExceedsIsDroppedAtTheSecondStep) {
  const ScratchDirectory directory;
  PosixFileSystem files;
  const std::string cache = directory.file("speed.json"), log = directory.file("log.jsonl");
  replace_file(files, cache, "measured on a busy machine");
  Listener listener;
  const std::atomic<int> signal = 0;
  const PretrainConfig config =
      small_config(gpt2_like("--train-iters 4 --eval-iters 0 --log-interval 1 --log-jsonl " + log));
  pretrain(config, *tokenizer_of(config.tokenizer),
           {.files = files,
            .progress = listener,
            .signal = signal,
            .measure_speed = [&](const PretrainConfig&, const AgreedMatmulChoices&) {
              return DeviceSpeed{.ceiling_flops = 1, .cache_file = cache};
            }});
  EXPECT_FALSE(files.exists(cache));
  EXPECT_THAT(listener.lines, HasSubstr("the ceiling is dropped with its file " + cache));
  std::vector<bool> has_percent;
  std::ifstream lines(log);
  for (std::string line; std::getline(lines, line);)
    if (line.find("\"lm_loss\"") != std::string::npos) has_percent.push_back(line.find("ceiling") != std::string::npos);
  EXPECT_THAT(has_percent, ::testing::ElementsAre(true, false, false, false));
}

TEST(Pretrain, AProfileHasThePhasesOfTheStepsAndWhatComesBetweenThem) {
  const ScratchDirectory directory;
  Listener listener;
  const std::atomic<int> signal = 0;
  run(gpt2_like(
          "--pipeline-model-parallel-size 2 --num-layers 4 --micro-batch-size 1 --train-iters 3 --eval-interval 2 "
          "--eval-iters 1 --profile --profile-step-start 1 --profile-step-end 3 --save-interval 2 --save " +
          directory.file("checkpoint") + " --profile-trace " + directory.file("run.json")),
      2, listener, signal);
  EXPECT_THAT(listener.lines, HasSubstr("profile of steps 2 to 3: "));
  EXPECT_THAT(listener.lines, HasSubstr("\nmatrix products "));
  PosixFileSystem files;
  const ProfiledRun trace = read_trace(read_file(files, directory.file("run.json")));
  for (int rank = 0; rank < 2; ++rank) {
    std::vector<std::string> top;
    int64_t end = 0;
    for (const TimelineEvent& event : trace.timelines.at(rank).at("host")) {
      if (event.begin < end) continue;
      top.push_back(event.name);
      end = event.end;
    }
    EXPECT_THAT(top, ::testing::ElementsAre("step 2", "evaluate", "save checkpoint", "step 3")) << rank;
  }
  EXPECT_THAT(read_file(files, directory.file("run.json.svg")), HasSubstr("Step 3 as it ran"));
}

TEST(Pretrain, AFailureBetweenStepsEndsAllRanksAndNamesTheFirst) {
  Listener listener;
  const std::atomic<int> signal = 0;
  std::string reported;
  listener.on_update = [](int64_t done) { require<DataError>(done < 2, "rank 0 fails after two steps"); };
  try {
    run(llama_like("--tensor-model-parallel-size 2 --use-distributed-optimizer --overlap-grad-reduce "
                   "--overlap-param-gather --micro-batch-size 1"),
        4, listener, signal,
        {.on_failure = [&](const RankFailure& failure) { reported = failure.what(); }, .on_hang = {}});
    FAIL() << "the run went on";
  } catch (const RankFailure& failure) {
    EXPECT_EQ(failure.rank, 0);
    EXPECT_THAT(failure.what(), HasSubstr("rank 0 fails after two steps"));
    EXPECT_EQ(reported, failure.what());
    EXPECT_THROW(std::rethrow_exception(failure.cause), DataError);
  }
}

/// Returns the message of two ranks if rank 0 pauses longer than the timeout after a step; empty if they go on.
std::string failure_of_a_pause_after(int64_t step) {
  Listener listener;
  const std::atomic<int> signal = 0;
  listener.on_update = [&](int64_t done) {
    if (done == step) std::this_thread::sleep_for(std::chrono::milliseconds(2500));
  };
  try {
    run(gpt2_like("--distributed-timeout-seconds-after-init 1 --train-iters 4 --eval-iters 0 --micro-batch-size 1"), 2,
        listener, signal);
    return "";
  } catch (const RankFailure& failure) {
    EXPECT_THROW(std::rethrow_exception(failure.cause), CommError);
    return failure.what();
  }
}

TEST(Pretrain, TheTimeoutAfterInitHoldsOnceAllHaveEndedTheFirstIteration) {
  EXPECT_EQ(failure_of_a_pause_after(1), "");
  EXPECT_THAT(failure_of_a_pause_after(2), HasSubstr("timed out after 1000 ms: rank 0 never entered it"));
  EXPECT_THAT(failure_of_a_pause_after(4),
              HasSubstr("the end of all ranks timed out after 1000 ms: rank 0 never entered it"));
}

}  // namespace
}  // namespace megatron::testing
