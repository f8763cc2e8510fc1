// Ranks with a GPU each that train small models; cuda_parallel_test.cpp starts them. What one of them finds wrong ends
// all with its exit status. Rank 0 prints a line for each case.
//   cuda_parallel_ranks RANKS curves|orders|bits|graphs|graphs_by_nccl|memory|checkpoint|waits|queues [STEPS]
//   cuda_parallel_ranks RANKS end|fail|hang|fail_in_graphs|hang_in_graphs|hang_in_graphs_of_replicas
//   cuda_parallel_ranks RANKS kill_in_graphs|kill_in_graphs_of_replicas
// STEPS are of curves: 20.
#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <thread>

#include "commands/exit_code.h"
#include "megatron/comm/rank_failure.h"
#include "megatron/training/checkpoint/checkpointer.h"
#include "megatron/training/config/layouts.h"
#include "megatron/training/planning/step_plan.h"
#include "tests/comm/nccl/nccl_ranks.h"
#include "tests/parallel/cuda_failures.h"
#include "tests/parallel/gpu_layouts.h"
#include "tests/parallel/summation_orders.h"
#include "tests/testing/tolerance.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

constexpr std::chrono::seconds kTimeout{60};

/// The ranks of this job, and its trainers one after the other.
class Job {
 public:
  /// @param has_copies  whether rows and messages may go by copy engine
  Job(const NcclRank& rank, bool has_copies) : rank_(rank), has_copies_(has_copies) {}

  NcclWorld& ranks() { return *rank_.ranks; }
  int size() const { return rank_.ranks->size(); }
  bool is_first() const { return rank_.ranks->rank() == 0; }

  /// `function(trainer)` on a layout of all ranks.
  void run(const std::string& words, const std::function<void(Trainer&)>& function,
           std::chrono::milliseconds timeout = kTimeout) {
    const PretrainConfig config = small_config(words, size());
    const auto world = ranks().join(kTimeout);  // outlives the announcement of a failure
    try {
      Trainer trainer(
          config, {.device = DeviceKind::kCuda,
                   .cuda_device = rank_.gpu,
                   .gpu_ranks = &ranks(),
                   .connections = plan_steps(config, ranks().rank(), DeviceKind::kCuda, ranks().places()).connections,
                   .groups = ProcessGroupCollection::make(*world, parallel_layout_of(config))});
      trainer.groups().world.barrier({"trainers are built"}).wait();
      world->set_timeout(timeout);
      function(trainer);
      trainer.device().synchronize();
      require_transports(config);
    } catch (const std::exception& error) {
      ranks().abort(fmt::format("rank {} failed: {}", ranks().rank(), error.what()));
      throw;
    }
    ranks().set_compute_stream(rank_.device->stream());
  }
  Curve curve(const std::string& words, int num_steps) {
    Curve curve;
    run(words, [&](Trainer& trainer) {
      for (int step = 0; step < num_steps; ++step) {
        const TrainStepResult result =
            trainer.train_step(batches_of(trainer.config(), step, trainer.groups().dp.rank()));
        curve.losses.push_back(result.loss.mean());
        curve.grad_norms.push_back(result.optimizer.grad_norm);
      }
    });
    return curve;
  }
  /// If NCCL moved rows or messages, the tested transport is not the one that users have.
  void require_transports(const PretrainConfig& config) {
    const bool shares_keys =  // heads go by all-to-all
        config.parallel.context_parallel_size > 1 && config.transformer.cp_comm_type.front() != CpCommType::kA2a;
    const bool moves =
        config.parallel.pipeline_model_parallel_size > 1 || config.parallel.sequence_parallel || shares_keys;
    const std::string transports = ranks().transports();
    const bool is_right =
        has_copies_ ? moves <= !transports.empty() && transports.find("NCCL") == std::string::npos : transports.empty();
    require<InternalError>(size() == 1 || is_right, "copies between GPUs were {}expected: \"{}\"",
                           has_copies_ ? "" : "not ", transports);
  }
  /// Prints a line, and fails where it says so.
  void report(const std::string& what, const std::string& result, bool is_right) const {
    if (is_first()) fmt::print("{:<60} {:<50} {}\n", what, result, is_right ? "ok" : "WRONG");
    std::fflush(stdout);
    require<InternalError>(is_right, "{}: {}", what, result);
  }

 private:
  const NcclRank& rank_;
  bool has_copies_;
};

const std::string kModel = kGpuModel;

Curve on_one_cpu(const std::string& words, int num_steps) {
  const PretrainConfig config = small_config(words);
  Trainer trainer(config, {.num_threads = 2});
  Curve curve;
  for (int step = 0; step < num_steps; ++step) {
    const TrainStepResult result = trainer.train_step(batches_of(config, step));
    curve.losses.push_back(result.loss.mean());
    curve.grad_norms.push_back(result.optimizer.grad_norm);
  }
  return curve;
}

double num_tokens_of_a_step(const std::string& words) {
  const PretrainConfig config = small_config(words);
  return static_cast<double>(config.training.global_batch_size.value() * config.model.seq_length.value());
}

/// Bounds rounding in fp32. A loss is the mean of a step's tokens, whose errors are their own, after steps that add to
/// the errors of the weights; a gradient is a sum over those tokens.
Departure limits_of(const std::string& words, const Curve& expected) {
  const double tokens = num_tokens_of_a_step(words);
  return {
      tolerance(DType::kFloat32, std::ssize(expected.losses), std::ranges::max(expected.losses)) / std::sqrt(tokens),
      tolerance(DType::kFloat32, static_cast<int64_t>(tokens), std::ranges::max(expected.grad_norms))};
}

void compare_curves(Job& job, const std::string& model, const std::vector<std::string>& layouts, int num_steps) {
  if (layouts.empty()) return;
  const Curve expected = on_one_cpu(model, num_steps);
  const Departure limits = limits_of(model, expected);
  for (const std::string& layout : layouts) {
    const Departure apart = departure(job.curve(model + layout, num_steps), expected);
    job.report(fmt::format("{} steps:{}", num_steps, layout),
               fmt::format("loss {:.1e} of {:.1e}, gradient norm {:.1e} of {:.1e}", apart.loss, limits.loss,
                           apart.grad_norm, limits.grad_norm),
               apart.loss <= limits.loss && apart.grad_norm <= limits.grad_norm);
  }
}

void compare_curves(Job& job, int num_steps) {
  compare_curves(job, gpt2_like(kModel), gpu_layouts_of(job.size()), num_steps);
  compare_curves(job, llama_like(kModel + " --num-layers 8"), deep_gpu_layouts_of(job.size()), num_steps);
  compare_curves(job, llama_like(kModel), gpu_layouts_of(job.size()), num_steps);
}

/// In bf16 a layout departs no more from one rank of the CPU than other orders of the same sums do there.
void compare_orders(Job& job) {
  constexpr int kSteps = 10;
  const std::string sizes = kModel + " --global-batch-size 24 --hidden-dropout 0 --attention-dropout 0 --bf16";
  for (const std::string& model : {gpt2_like(sizes), llama_like(sizes)}) {
    const OrdersOfSummation orders = eight_orders(model, kSteps);
    for (const std::string& layout : gpu_layouts_of(job.size())) {
      const double departure = std::abs(job.curve(model + layout, kSteps).losses.back() - orders.middle());
      job.report("10 steps in bf16:" + layout,
                 fmt::format("departs {:.2f} of the spread {:.1e} of eight orders", departure / orders.spread(),
                             orders.spread()),
                 departure <= 2 * orders.spread() && orders.spread() < epsilon(DType::kBFloat16) * orders.middle());
    }
  }
}

/// Compares bits of two ranks, where the order of a sum has no choice.
void compare_bits(Job& job) {
  for (const std::string& model : {gpt2_like(kModel), llama_like(kModel + " --bf16 --clip-grad 0.1")}) {
    const Curve plain = job.curve(model, 5);
    for (const std::string words :
         {"", " --overlap-grad-reduce --ddp-bucket-size 1000", " --use-distributed-optimizer",
          " --use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather --ddp-bucket-size 3000"})
      job.report("5 steps, the bits of plain replicas:" + words, "", job.curve(model + words, 5) == plain);
  }
}

bool has_pipeline(const std::string& layout) {
  return layout.find("--pipeline-model-parallel-size") != std::string::npos;
}

const std::string kGraph = " --cuda-graph-impl full_iteration --cuda-graph-warmup-steps 2";

/// Steps whose forward and backward are one launch, with what ranks exchange in them, have the bits of those op by op.
void compare_graphs(Job& job) {
  constexpr int kSteps = 7, kWarmUpSteps = 2;
  int64_t num_launches = 0, num_nodes = 0, num_waits = 0;
  const auto outcome_of = [&](const std::string& words) {
    std::vector<double> outcome;
    job.run(words, [&](Trainer& trainer) {
      for (int step = 0; step < kSteps; ++step) {
        const auto batches = batches_of(trainer.config(), step, trainer.groups().dp.rank());
        if (step == kWarmUpSteps + 2) outcome.push_back(trainer.evaluate(batches).sum);
        const int64_t before = job.ranks().num_host_waits();
        const TrainStepResult result = trainer.train_step(batches);
        num_waits = job.ranks().num_host_waits() - before;
        outcome.insert(outcome.end(), {result.loss.sum, result.optimizer.grad_norm});
      }
      outcome.push_back(trainer.params_norm());
      num_launches = trainer.graph().num_launches();
      num_nodes = trainer.graph().num_nodes();
    });
    return outcome;
  };
  const std::vector<std::string> models = {gpt2_like(kModel), llama_like(kModel + " --bf16 --clip-grad 0.1")};
  std::vector<std::string> layouts = gpu_layouts_of(job.size());
  std::erase_if(layouts, [](const std::string& layout) { return has_pipeline(layout) || shares_documents(layout); });
  require<InternalError>(!layouts.empty(), "no layout of {} ranks is without a pipeline", job.size());
  for (size_t i = 0; i < layouts.size(); ++i) {
    const std::string words = models[i % models.size()] + layouts[i];
    const std::vector<double> expected = outcome_of(words), outcome = outcome_of(words + kGraph);
    job.report("graphs:" + layouts[i], fmt::format("{} launches of {} nodes", num_launches, num_nodes),
               outcome == expected && num_launches == kSteps - kWarmUpSteps && num_waits == 0);
  }
}

void move_checkpoints(Job& job) {
  const std::filesystem::path path = std::filesystem::temp_directory_path() /
                                     ("megatron_cuda_ranks_" + process_environment()("TORCHELASTIC_RUN_ID").value());
  const std::vector<std::string> layouts = gpu_layouts_of(job.size());
  for (size_t i = 0; i < layouts.size(); ++i) {
    const std::string &from = layouts[i], &to = layouts[(i + 3) % layouts.size()];
    const std::string model = llama_like(kModel + " --save-interval 2 --save " + path.string());
    PosixFileSystem files;
    double expected = 0, actual = 0;
    job.run(model + from, [&](Trainer& trainer) {
      train(trainer, 0, 2);
      Checkpointer(files, trainer.config(), {}).save(trainer);
      expected = train(trainer, 2, 3)[0];
    });
    job.run(model + to + " --load " + path.string(), [&](Trainer& trainer) {
      require<CheckpointError>(Checkpointer(files, trainer.config(), {}).load(trainer), "no checkpoint");
      actual = train(trainer, 2, 3)[0];
      trainer.groups().world.barrier({"all have read"}).wait();
    });
    const double error = std::abs(actual - expected), limit = limits_of(model, {{expected}, {0}}).loss;
    job.report("a checkpoint of" + from + " under" + to,
               fmt::format("next loss differs by {:.1e} of {:.1e}", error, limit), error <= limit);
    if (job.is_first()) std::filesystem::remove_all(path);
  }
}

/// A rank whose GPU waits for another goes on until its queue of kernels is full, and then holds what a thread of its
/// process would need to connect ranks: 24 layers and 16 micro-batches are some ten thousand kernels.
void fill_queues(Job& job) {
  constexpr int kSteps = 2;
  const std::string model = llama_like(" --num-layers 24 --global-batch-size 16 --micro-batch-size 1 --lr 1e-3");
  const Curve expected = on_one_cpu(model, kSteps);
  const double limit = limits_of(model, expected).loss;
  for (const std::string& layout : gpu_layouts_of(job.size())) {
    if (!has_pipeline(layout)) continue;
    const double loss = departure(job.curve(model + layout, kSteps), expected).loss;
    job.report("24 layers:" + layout, fmt::format("loss {:.1e} of {:.1e}", loss, limit), loss <= limit);
  }
}

/// The arena takes from the GPU what was planned, to the byte, and no more where documents could be
/// others.
void compare_plans(Job& job) {
  for (const std::string& layout : gpu_layouts_of(job.size()))
    job.run(llama_like(kModel + " --bf16" + layout), [&](Trainer& trainer) {
      train(trainer, 0, 3);
      trainer.evaluate(batches_of(trainer.config(), 3, trainer.groups().dp.rank()));
      const MemoryPlan plan =
          plan_steps(trainer.config(), job.ranks().rank(), DeviceKind::kCuda, job.ranks().places()).memory;
      const Arena& arena = trainer.device().arena;
      const bool is_equal = plan.peak == arena.total().peak && plan.high_water == arena.high_water_bytes();
      const bool fits = plan.peak >= arena.total().peak && plan.high_water >= arena.high_water_bytes();
      job.report("memory:" + layout, fmt::format("{} bytes, planned {}", arena.total().peak, plan.peak),
                 shares_documents(layout) ? fits : is_equal);
    });
}

/// Beside the read of loss and norm the host waits for nothing. It did before, when the trainers were built.
void count_waits(Job& job) {
  for (const std::string& layout : gpu_layouts_of(job.size())) {
    if (shares_documents(layout)) continue;  // hosts exchange documents before each step
    job.run(llama_like(kModel) + layout, [&](Trainer& trainer) {
      train(trainer, 0, 2);
      const int64_t before = job.ranks().num_host_waits();
      train(trainer, 2, 5);
      const int64_t waits = job.ranks().num_host_waits() - before;
      job.report("waits of the host for ranks in 3 steps:" + layout, std::to_string(waits), waits == 0 && before > 0);
    });
  }
}

void say_now() {
  fmt::print("{}", kNow);
  std::fflush(stdout);
}

/// The last rank is killed while its graph waits for the first rank, which comes later.
void kill_in_graph(Job& job, Trainer& trainer) {
  static constexpr std::chrono::milliseconds kKilledAfter{500}, kComesAfter{1000};
  if (job.ranks().rank() == job.size() - 1)
    std::thread([] {
      std::this_thread::sleep_for(kKilledAfter);
      say_now();
      std::raise(SIGKILL);
    }).detach();
  if (job.is_first()) std::this_thread::sleep_for(kComesAfter);
  train(trainer, 4, 6);
}

/// The last rank does it in its fifth step; "end" is to go on. Those of replicas wait for each other before the graph
/// too.
void go_wrong(Job& job, const std::string& what) {
  std::string words = kModel;
  if (what.find("graphs") != std::string::npos) words += kGraph;
  if (what.ends_with("graphs"))
    words += fmt::format(" --sequence-parallel --tensor-model-parallel-size {}", job.size());
  job.run(
      gpt2_like(words),
      [&](Trainer& trainer) {
        train(trainer, 0, 4);
        const bool has_graph = trainer.graph().num_launches() > 0;
        require<InternalError>(has_graph == (what.find("graphs") != std::string::npos), "{} in steps that {} graphs",
                               what, has_graph ? "are" : "are no");
        if (what.starts_with("kill")) return kill_in_graph(job, trainer);
        if (job.ranks().rank() == job.size() - 1) {
          say_now();
          require<ShapeError>(!what.starts_with("fail"), "five is not six");
          if (what.starts_with("hang")) std::this_thread::sleep_for(std::chrono::minutes(1));
        }
        train(trainer, 4, 6);
      },
      kShortTimeout);
}

void run_case(Job& job, const std::string& what, int num_steps) {
  if (what == "curves") return compare_curves(job, num_steps);
  if (what == "orders") return compare_orders(job);
  if (what == "bits") return compare_bits(job);
  if (what == "graphs" || what == "graphs_by_nccl") return compare_graphs(job);
  if (what == "memory") return compare_plans(job);
  if (what == "checkpoint") return move_checkpoints(job);
  if (what == "waits") return count_waits(job);
  if (what == "queues") return fill_queues(job);
  const bool goes_wrong = what.starts_with("fail") || what.starts_with("hang") || what.starts_with("kill");
  require<ConfigError>(goes_wrong || what == "end", "there is no case \"{}\"", what);
  go_wrong(job, what);
}

int run_rank(const LaunchEnvironment& launch, const std::string& what, int num_steps) {
  return run_command("cuda_ranks", std::cerr, [&] {
    const bool has_copies = !what.ends_with("by_nccl");
    const NcclRank rank = join_nccl_ranks(launch, has_copies);
    Job job(rank, has_copies);
    try {
      run_case(job, what, num_steps);
      rank.ranks->finish(kTimeout);
    } catch (const std::exception& error) {
      throw RankFailure(launch.rank, std::current_exception(), fmt::format("[rank {}] {}", launch.rank, error.what()));
    }
  });
}

}  // namespace
}  // namespace megatron::testing

int main(int argc, char** argv) {
  using namespace megatron::testing;
  return run_nccl_ranks(std::stoi(argv[1]), argc, argv, [&](const megatron::LaunchEnvironment& launch) {
    return run_rank(launch, argv[2], argc > 3 ? std::stoi(argv[3]) : 20);
  });
}
