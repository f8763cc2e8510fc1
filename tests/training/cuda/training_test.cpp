// Whole training runs on a GPU against the same runs on the CPU. Without a GPU the tests are skipped.
#include <gtest/gtest.h>

#include <cmath>

#include "megatron/core/cuda_devices.h"
#include "megatron/inference/generator.h"
#include "megatron/training/checkpoint/checkpointer.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/tolerance.h"
#include "tests/training/small_trainer.h"

namespace megatron {
namespace {

using testing::batches_of;
using testing::gpt2_like;
using testing::llama_like;
using testing::optimizer_state_of;
using testing::ScratchDirectory;
using testing::small_config;
using testing::tolerance;
using testing::train;
using testing::weights_of;

const Trainer::Options kCpu = {.device = DeviceKind::kCpu, .num_threads = 8};
const Trainer::Options kCuda = {.device = DeviceKind::kCuda};

/// Sizes that no tile divides: 50257 tokens, heads of 24 (and of 5 groups), sequences of 61.
const std::string kOdd = " --seq-length 61 --max-position-embeddings 61 --num-layers 2 --lr 1e-3 --vocab-size 50257 ";
const std::string kOddGpt2 = gpt2_like(kOdd + "--hidden-size 120 --num-attention-heads 5 ");
const std::string kOddLlama =
    llama_like(kOdd + "--hidden-size 240 --num-attention-heads 10 --num-query-groups 5 --ffn-hidden-size 328 ");

class CudaTraining : public ::testing::Test {
 protected:
  void SetUp() override {
    const CudaDevices gpus = find_cuda_devices();
    if (gpus.devices.empty()) GTEST_SKIP() << "no GPU answers: " << gpus.problem;
  }
};

struct Curve {
  std::vector<double> losses, norms;
};
Curve run_of(const PretrainConfig& config, const Trainer::Options& options, int num_steps) {
  Trainer trainer(config, options);
  Curve run;
  for (int step = 0; step < num_steps; ++step) {
    const TrainStepResult result = trainer.train_step(batches_of(config, step));
    run.losses.push_back(result.loss.mean());
    run.norms.push_back(result.optimizer.grad_norm);
  }
  return run;
}

struct Outcome {
  std::vector<double> losses, weights, state;
  double evaluation = 0, params_norm = 0;
  bool operator==(const Outcome&) const = default;
};
Outcome outcome_of(Trainer& trainer, int64_t num_steps) {
  const int64_t begin = trainer.progress().iteration;
  Outcome outcome{.losses = train(trainer, begin, begin + num_steps), .weights = weights_of(trainer)};
  outcome.evaluation = trainer.evaluate(batches_of(trainer.config(), 50)).mean();
  outcome.params_norm = trainer.params_norm();
  outcome.state = optimizer_state_of(trainer);
  return outcome;
}

TEST_F(CudaTraining, InFp32FollowsTheCpuFor20Steps) {
  for (const std::string& words : {kOddGpt2, kOddLlama}) {
    SCOPED_TRACE(words);
    const PretrainConfig config = small_config(words);
    const Curve cpu = run_of(config, kCpu, 20), gpu = run_of(config, kCuda, 20);
    double loss_distance = 0, norm_distance = 0;
    for (size_t i = 0; i < cpu.losses.size(); ++i) {
      loss_distance = std::max(loss_distance, std::abs(gpu.losses[i] - cpu.losses[i]) / cpu.losses[i]);
      norm_distance = std::max(norm_distance, std::abs(gpu.norms[i] - cpu.norms[i]) / cpu.norms[i]);
    }
    EXPECT_LT(loss_distance, tolerance(DType::kFloat32, 20)) << "each step adds to the errors of the weights";
    EXPECT_LT(norm_distance, tolerance(DType::kFloat32, 50257)) << "gradients are sums over the vocabulary";
    EXPECT_LT(gpu.losses.back(), gpu.losses.front());
    fmt::print("20 steps: losses {:.6f} to {:.6f}; relative distance of losses {:.2e}, of gradient norms {:.2e}\n",
               gpu.losses.front(), gpu.losses.back(), loss_distance, norm_distance);
  }
}

TEST_F(CudaTraining, InHalfPrecisionStaysBesideTheCpu) {
  for (const std::string& words : {kOddGpt2, kOddLlama})
    for (const char* precision : {" --bf16", " --fp16 --initial-loss-scale 1024"}) {
      SCOPED_TRACE(words + precision);
      const PretrainConfig config = small_config(words + precision);
      const Curve cpu = run_of(config, kCpu, 10), gpu = run_of(config, kCuda, 10);
      double distance = 0;
      for (size_t i = 0; i < cpu.losses.size(); ++i)
        distance = std::max(distance, std::abs(gpu.losses[i] - cpu.losses[i]) / cpu.losses[i]);
      EXPECT_LT(distance, epsilon(DType::kBFloat16));
      fmt::print("10 steps{}: relative distance of losses {:.2e}\n", precision, distance);
    }
}

TEST_F(CudaTraining, HasTheBitsOfAnotherRunAndOfRecompute) {
  for (const std::string& model : {gpt2_like(), llama_like()})
    for (const char* precision :
         {"", " --bf16", " --bf16 --attention-dropout 0", " --fp16 --initial-loss-scale 1024"}) {
      const std::string words = model + precision + " --deterministic-mode";
      SCOPED_TRACE(words);
      Trainer first(small_config(words), kCuda), second(small_config(words), kCuda);
      const char* recompute = " --recompute-granularity full --recompute-method uniform --recompute-num-layers 1";
      Trainer replayed(small_config(words + recompute), kCuda);
      const Outcome outcome = outcome_of(first, 3);
      EXPECT_TRUE(outcome_of(second, 3) == outcome);
      EXPECT_TRUE(outcome_of(replayed, 3) == outcome);
    }
}

/// The host's arithmetic is the CPU's: it follows the GPU's as a run on the CPU does.
TEST_F(CudaTraining, WithTheOptimizerOnTheHostFollowsTheGpusOptimizer) {
  const std::string offload = " --optimizer-cpu-offload", overlap = offload + " --overlap-cpu-optimizer-d2h-h2d";
  for (const char* precision :
       {"", " --bf16", " --bf16 --use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16",
        " --bf16 --use-distributed-optimizer"}) {
    SCOPED_TRACE(precision);
    const std::string words = kOddLlama + precision + " --deterministic-mode";
    const auto run = [&](const std::string& way, int64_t piece) {
      PretrainConfig config = small_config(words + way);
      config.optimizer.host_piece_elements = piece;
      Trainer trainer(config, {.device = DeviceKind::kCuda, .num_threads = 8});
      if (!way.empty()) {
        EXPECT_GT(trainer.device().pinned.amount(MemoryUse::kOptimizer).live, 0);
      }
      return outcome_of(trainer, 5);
    };
    const Outcome plain = run("", 0), serial = run(offload, 1 << 22);
    EXPECT_TRUE(run(overlap, 1 << 22) == serial) << "copies beside the arithmetic give other bits";
    EXPECT_TRUE(run(overlap, 8192) == serial) << "many pieces, whose places in staging memory are used again";
    EXPECT_TRUE(run(overlap, 100000) == serial) << "pieces that no tile divides";
    double distance = 0;
    for (size_t i = 0; i < plain.losses.size(); ++i)
      distance = std::max(distance, std::abs(serial.losses[i] - plain.losses[i]) / plain.losses[i]);
    EXPECT_LT(distance, *precision ? epsilon(DType::kBFloat16) : tolerance(DType::kFloat32, 20));
    EXPECT_NEAR(serial.params_norm, plain.params_norm, 1e-3 * plain.params_norm);
    const Outcome half = run(overlap + " --optimizer-offload-fraction 0.5", 8192);
    EXPECT_NEAR(half.losses.back(), plain.losses.back(), epsilon(DType::kBFloat16) * plain.losses.back());
    fmt::print("5 steps{}: relative distance of losses {:.2e}\n", precision, distance);
  }
}

/// Large values, so that copies take longer than layers, and several micro-batches, so that host memory is used again.
TEST_F(CudaTraining, HasTheBitsOfThePlainRunWithActivationsOnTheHost) {
  const std::string words = llama_like(
      "--bf16 --deterministic-mode --num-layers 8 --hidden-size 256 --ffn-hidden-size 1024 --seq-length 2048 "
      "--max-position-embeddings 2048 --micro-batch-size 1 --global-batch-size 4");
  Trainer plain(small_config(words), kCuda);
  const Outcome expected = outcome_of(plain, 3);
  const std::string modules =
      " --fine-grained-activation-offloading --offload-modules attn_norm core_attn attn_proj "
      "mlp_norm qkv_linear --min-offloaded-tensor-size ";
  for (const std::string& way :
       {std::string(" --cpu-offloading-num-layers 1"), std::string(" --cpu-offloading-num-layers 4"),
        std::string(" --cpu-offloading-num-layers 7"), modules + "1", modules + "100000"}) {
    Trainer offloaded(small_config(words + way), kCuda);
    EXPECT_TRUE(outcome_of(offloaded, 3) == expected) << way;
    EXPECT_GT(offloaded.device().pinned.amount(MemoryUse::kActivations).peak, 0);
    EXPECT_EQ(offloaded.device().pinned.amount(MemoryUse::kActivations).live, 0);
    if (!way.ends_with(" 1")) {
      EXPECT_LT(offloaded.device().arena.amount(MemoryUse::kActivations).peak,
                plain.device().arena.amount(MemoryUse::kActivations).peak);
    }
  }
}

TEST_F(CudaTraining, ResumesOnTheHostWhatTheGpuStepped) {
  const std::string offload = " --optimizer-cpu-offload --overlap-cpu-optimizer-d2h-h2d";
  const ScratchDirectory directory;
  const std::string words = llama_like("--bf16 --deterministic-mode --save-interval 1 --save " + directory.path());
  const PretrainConfig saved = small_config(words + offload);
  const PretrainConfig loaded = small_config(words + offload + " --load " + directory.path());
  PosixFileSystem files;
  Trainer straight(saved, kCuda), resumed(loaded, kCuda);
  train(straight, 0, 2);
  Checkpointer(files, saved, {}).save(straight);
  ASSERT_TRUE(Checkpointer(files, loaded, {}).load(resumed));
  EXPECT_EQ(optimizer_state_of(resumed), optimizer_state_of(straight));
  EXPECT_TRUE(outcome_of(resumed, 2) == outcome_of(straight, 2));
  Trainer on_gpu(small_config(words + " --load " + directory.path()), kCuda);
  ASSERT_TRUE(Checkpointer(files, on_gpu.config(), {}).load(on_gpu));
  EXPECT_EQ(on_gpu.progress().iteration, 2);
}

TEST_F(CudaTraining, SkipsStepsThatOverflow) {
  Trainer trainer(small_config(llama_like("--fp16 --initial-loss-scale 1e9 --hysteresis 1")), kCuda);
  const std::vector<double> before = weights_of(trainer);
  EXPECT_FALSE(trainer.train_step(batches_of(trainer.config(), 0)).optimizer.success);
  EXPECT_EQ(weights_of(trainer), before);
  EXPECT_LT(trainer.optimizer().loss_scale(), 1e9);
}

/// At ten times this rate Adam makes of what is rounded in gradients near 0 so much that the CPU in fp32 departs from
/// fp64 by 9e-6 in the third step, instead of by 9e-8.
TEST_F(CudaTraining, TrainsWithTheDistributedOptimizerAndDocuments) {
  const std::string words = llama_like("--reset-position-ids --reset-attention-mask --global-batch-size 2 --lr 1e-3 ");
  const std::vector<MicroBatch<int64_t>> batches = {
      testing::sample_of({3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 3, 2}, {5, 11})};
  Trainer gpu(small_config(words + "--use-distributed-optimizer --log-num-zeros-in-grad"), kCuda);
  Trainer cpu(small_config(words), kCpu);
  for (int step = 0; step < 3; ++step) {
    const double expected = cpu.train_step(batches).loss.mean();
    EXPECT_NEAR(gpu.train_step(batches).loss.mean(), expected, tolerance(DType::kFloat32, 3, expected));
  }
}

TEST_F(CudaTraining, ResumesBitForBit) {
  for (const char* way : {"", " --bf16 --attention-dropout 0", " --bf16 --use-distributed-optimizer",
                          " --bf16 --use-distributed-optimizer --use-precision-aware-optimizer --exp-avg-dtype bf16",
                          " --bf16 --use-precision-aware-optimizer --main-params-dtype bf16 --main-grads-dtype bf16"
                          " --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16"}) {
    SCOPED_TRACE(way);
    const ScratchDirectory directory;
    const std::string line = llama_like(way + (" --deterministic-mode --save-interval 1 --save " + directory.path()));
    const PretrainConfig config = small_config(line + " --load " + directory.path());
    PosixFileSystem files;
    Checkpointer checkpointer(files, config, {});
    Trainer straight(config, kCuda), resumed(config, kCuda), on_cpu(config, kCpu);
    train(straight, 0, 2);
    checkpointer.save(straight);
    const Outcome expected = outcome_of(straight, 2);
    ASSERT_TRUE(checkpointer.load(resumed));
    ASSERT_TRUE(checkpointer.load(on_cpu));
    EXPECT_TRUE(outcome_of(resumed, 2) == expected);
    const double loss = expected.losses[0];
    EXPECT_NEAR(train(on_cpu, 2, 3)[0], loss,
                config.precision.bf16 ? epsilon(DType::kBFloat16) * loss : tolerance(DType::kFloat32, 1, loss));
  }
}

constexpr const char* kGraph = " --deterministic-mode --cuda-graph-impl full_iteration";

TEST_F(CudaTraining, HasTheBitsOfStepsOpByOpInStepsThatAreGraphs) {
  for (const std::string& model : {gpt2_like(), llama_like()})
    for (const char* way :
         {"", " --bf16", " --bf16 --attention-dropout 0 --clip-grad 0.01",
          " --no-calculate-per-token-loss --optimizer sgd",
          " --bf16 --use-distributed-optimizer --lr-decay-style cosine --weight-decay-incr-style linear"
          " --start-weight-decay 0.01 --end-weight-decay 0.2",
          " --bf16 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1"}) {
      SCOPED_TRACE(model + way);
      const std::string words = model + way;
      Trainer op_by_op(small_config(words + " --deterministic-mode"), kCuda);
      Trainer graph(small_config(words + kGraph), kCuda);
      for (const int64_t num_steps : {5, 4}) {  // an evaluation lies between
        const Outcome outcome = outcome_of(graph, num_steps), expected = outcome_of(op_by_op, num_steps);
        EXPECT_EQ(outcome.losses, expected.losses);
        EXPECT_TRUE(outcome == expected);
      }
      EXPECT_EQ(graph.graph().num_launches(), 5 + 4 - 3) << "three steps warm up";
      EXPECT_GT(graph.graph().num_nodes(), 50);
      EXPECT_EQ(graph.device().num_operations, op_by_op.device().num_operations);
    }
}

TEST_F(CudaTraining, SkipsStepsThatOverflowInGraphsToo) {
  const std::string words =
      llama_like("--fp16 --initial-loss-scale 65536 --loss-scale-window 1 --hysteresis 1 --deterministic-mode");
  Trainer op_by_op(small_config(words), kCuda), graph(small_config(words + kGraph), kCuda);
  int num_skipped = 0, num_done = 0;
  for (int step = 0; step < 24; ++step) {
    const auto batches = batches_of(graph.config(), step);
    const TrainStepResult expected = op_by_op.train_step(batches), result = graph.train_step(batches);
    EXPECT_EQ(result.optimizer.success, expected.optimizer.success) << step;
    EXPECT_EQ(result.loss.sum, expected.loss.sum) << step;
    if (step >= 3) ++(result.optimizer.success ? num_done : num_skipped);
  }
  EXPECT_EQ(weights_of(graph), weights_of(op_by_op));
  EXPECT_EQ(graph.graph().num_launches(), 24 - 3);
  EXPECT_GT(num_skipped, 0);
  EXPECT_GT(num_done, 0);
}

/// One rank's view of ranks that wait for each other where it finds a change.
class NotingRanks final : public GpuRanks {
 public:
  void set_compute_stream(CUstream_st*) override {}
  void connect(const Connections&) override {}
  void begin_step() override {}
  void throw_if_failed() const override {}
  void end_step() noexcept override {}
  std::string transports() const override { return ""; }
  const RankPlaces& places() const override { return places_; }
  void begin_recording() override {}
  void end_recording() noexcept override {}
  void begin_graph_step(std::string_view, std::string_view change) override { changes.emplace_back(change); }
  void launch_graph(std::string_view, const std::function<void()>& launch) override { launch(); }

  std::vector<std::string> changes;

 private:
  RankPlaces places_;
};

/// A step with fewer micro-batches needs another recording, for which ranks meet, as they do in no other step.
TEST_F(CudaTraining, RecordsAnewWhereTheBatchChanges) {
  const std::string words = llama_like("--global-batch-size 6 --cuda-graph-warmup-steps 2");
  NotingRanks ranks;
  Trainer op_by_op(small_config(words + " --deterministic-mode"), kCuda),
      graph(small_config(words + kGraph), {.device = DeviceKind::kCuda, .gpu_ranks = &ranks});
  for (int step = 0; step < 10; ++step) {
    const auto all = batches_of(graph.config(), step);
    const auto batches = std::span(all).first(step < 5 ? 1 : 3);
    EXPECT_EQ(graph.train_step(batches).loss.sum, op_by_op.train_step(batches).loss.sum) << step;
    EXPECT_EQ(graph.graph().num_launches(), step < 5 ? std::max(0, step - 1) : 3 + std::max(0, step - 6)) << step;
  }
  std::vector<std::string> expected(10);
  expected[5] = "its micro-batches are others in number or shape than those of its last step";
  EXPECT_EQ(ranks.changes, expected);
  EXPECT_EQ(weights_of(graph), weights_of(op_by_op));
}

/// Resumes with what its own graph left.
TEST_F(CudaTraining, ResumesBitForBitWhereStepsAreGraphs) {
  const ScratchDirectory directory;
  const std::string line =
      llama_like("--bf16 --save-interval 1 --save " + directory.path() + " --load " + directory.path() + kGraph);
  const PretrainConfig config = small_config(line + " --cuda-graph-warmup-steps 1");
  PosixFileSystem files;
  Checkpointer checkpointer(files, config, {});
  Trainer straight(config, kCuda), resumed(config, kCuda);
  train(straight, 0, 4);
  checkpointer.save(straight);
  const Outcome expected = outcome_of(straight, 4);
  ASSERT_TRUE(checkpointer.load(resumed));
  EXPECT_TRUE(outcome_of(resumed, 4) == expected);
  EXPECT_EQ(straight.graph().num_launches(), 8 - 1);
  EXPECT_EQ(resumed.graph().num_launches(), 4 - 1);
}

struct CountOps final : Profiler {
  void begin_op(const OpPlace&, const OpNote&, const std::source_location&) override { ++num_ops; }
  void end_op() noexcept override {}
  void begin_range(const RangeNote&) override {}
  void end_range() noexcept override {}
  int64_t num_ops = 0;
};

TEST_F(CudaTraining, RunsOpByOpWhereAProfileListens) {
  Trainer op_by_op(small_config(gpt2_like("--deterministic-mode")), kCuda),
      graph(small_config(gpt2_like(kGraph)), kCuda);
  CountOps listener;
  for (int step = 0; step < 8; ++step) {
    graph.device().profiler = step == 5 ? &listener : nullptr;
    const auto batches = batches_of(graph.config(), step);
    EXPECT_EQ(graph.train_step(batches).loss.sum, op_by_op.train_step(batches).loss.sum) << step;
  }
  EXPECT_GT(listener.num_ops, graph.graph().num_nodes() / 4);
  EXPECT_EQ(graph.graph().num_launches(), 8 - 3 - 1);
}

TEST_F(CudaTraining, GeneratesTheTextOfTheCpu) {
  for (const std::string& words : {gpt2_like(), llama_like()}) {
    const auto text_of = [&](const Trainer::Options& options) {
      Trainer trainer(small_config(words), options);
      train(trainer, 0, 3);
      return Generator(trainer.context(), trainer.model())
          .generate({3, 17, 8}, {.max_new_tokens = 8, .sampling = {.temperature = 0}}, {});
    };
    EXPECT_EQ(text_of(kCuda), text_of(kCpu));
  }
}

TEST_F(CudaTraining, NeedsTheMemoryOfItsPlanToTheByte) {
  for (const std::string& model : {gpt2_like(), llama_like()})
    for (const char* way :
         {"", " --bf16", " --bf16 --recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
          " --bf16 --use-distributed-optimizer"}) {
      SCOPED_TRACE(model + way);
      const PretrainConfig config = small_config(model + way);
      Trainer real(config, {.device = DeviceKind::kCuda, .record_events = true});
      Trainer plan(config, {.device = DeviceKind::kMeta, .record_events = true, .meta_of = DeviceKind::kCuda});
      for (Trainer* trainer : {&real, &plan}) {
        train(*trainer, 0, 2);
        trainer->evaluate(batches_of(config, 2));
      }
      const Arena &actual = real.device().arena, &planned = plan.device().arena;
      EXPECT_TRUE(planned.events() == actual.events());
      EXPECT_EQ(planned.total().peak, actual.total().peak);
      EXPECT_EQ(planned.high_water_bytes(), actual.high_water_bytes());
    }
}

}  // namespace
}  // namespace megatron
