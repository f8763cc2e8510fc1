#include "megatron/training/pretrain.h"

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "megatron/base/thread_start.h"
#include "megatron/comm/texts.h"
#include "megatron/core/cuda_devices.h"
#include "megatron/core/host_memory_limit.h"
#include "megatron/kernels/cuda/attention/attention.h"
#include "megatron/telemetry/gpu_process_memory.h"
#include "megatron/telemetry/run_messages.h"
#include "megatron/training/config/layouts.h"
#include "megatron/training/planning/expert_room.h"
#include "megatron/training/planning/gpu_memory_check.h"
#include "megatron/training/planning/host_tables.h"
#include "megatron/training/planning/parameter_count.h"
#include "megatron/training/planning/ranks_memory.h"
#include "megatron/training/planning/step_plan.h"
#include "megatron/training/planning/theoretical_memory.h"
#include "megatron/training/rejected_steps.h"
#include "megatron/training/startup/checkpoint_locks.h"
#include "megatron/training/startup/config_consistency.h"
#include "megatron/training/startup/data_consistency.h"
#include "megatron/training/startup/evaluation_samples.h"
#include "megatron/training/startup/matmul_choices_file.h"
#include "megatron/training/startup/output_paths.h"
#include "megatron/training/training_loop.h"
#include "megatron/training/vocab.h"

namespace megatron {
namespace {

void milestone(const PretrainEnvironment& environment, std::string_view what) {
  environment.progress.message(milestone_line(what, std::chrono::system_clock::now()));
}

constexpr std::string_view kDataTimer = "train/valid/test-data-iterators-setup";
constexpr std::string_view kModelTimer = "model-and-optimizer-setup";
constexpr std::string_view kLoadTimer = "load-checkpoint";

/// On what a rank computes.
struct RankDevice {
  DeviceChoice choice;
  kernels::MatmulChoices products;
  int64_t capacity_bytes = 0;  // this and the next: Trainer::Options
  Connections connections = {};
  MemoryPlan memory = {};  // of a GPU
  int64_t ranks_of_host = 1;
};

/// A CPU's ranks share its memory.
int64_t capacity_of(const DeviceChoice& device, int64_t ranks_here) {
  return device.kind == DeviceKind::kCpu ? host_memory_for_arenas(ranks_here) : 0;
}

/// `environment`, in which `tell` is called after the first step.
PretrainEnvironment with_first_step(const PretrainEnvironment& environment, std::function<void(Trainer&)> tell) {
  PretrainEnvironment told = environment;
  told.on_step = [&environment, tell = std::move(tell), is_first = true](Trainer& trainer,
                                                                         const TrainStepResult& result) mutable {
    if (std::exchange(is_first, false)) tell(trainer);
    if (environment.on_step) environment.on_step(trainer, result);
  };
  return told;
}

/// Told after the first step how many of its products have measured algorithms.
PretrainEnvironment with_matmul_use(const PretrainEnvironment& environment, const kernels::MatmulChoices& choices) {
  if (choices.choices.empty()) return environment;
  return with_first_step(environment,
                         [&](Trainer& trainer) { environment.progress.info(matmul_use_text(trainer.device())); });
}

/// The plan of the steps of this process's rank; steps on a CPU need none.
StepPlan plan_steps_on(const DeviceChoice& device, const PretrainEnvironment& environment,
                       const PretrainConfig& config) {
  if (device.kind != DeviceKind::kCuda) return {};
  if (!environment.world) return plan_steps(config, 0, device.kind, {});
  if (!environment.gpu_ranks) return {};  // which no trainer takes
  return plan_steps(config, environment.world->rank(), device.kind, environment.gpu_ranks->places());
}

/// Says after the first step by what ranks with a GPU each send, on which of them by NCCL, and why.
PretrainEnvironment with_transports(const PretrainEnvironment& environment, const ProcessGroup& world) {
  if (!environment.gpu_ranks) return environment;
  return with_first_step(environment, [&environment, world](Trainer&) {
    const std::string text = describe_lines(gather_texts(world, environment.gpu_ranks->transports(), "transports"));
    if (text.empty() || world.rank() > 0) return;
    environment.progress.info(text);
    if (environment.on_transports) environment.on_transports(text);
  });
}

/// The GPU memory of this process if the driver reports it, otherwise of all processes.
int64_t gpu_bytes_in_use(const DeviceChoice& device) {
  if (device.own_bytes)
    if (const std::optional<int64_t> own = own_gpu_bytes(device.pci_bus_id)) return *own;
  if constexpr (kHasCuda) return device.memory_bytes - free_cuda_bytes();
  return 0;
}

/// The GPU memory that was in use when this process had only its context there.
GpuMemory memory_at_start(const DeviceChoice& choice) {
  const int64_t in_use = choice.memory_bytes - choice.free_bytes;
  GpuMemory gpu{.total = choice.memory_bytes, .in_use = choice.own_bytes.value_or(in_use)};
  gpu.others = in_use - gpu.in_use;
  return gpu;
}

/// On all ranks of a run on GPUs. @param gpu  of this rank, with what is known of it so far
void require_plan_fits_on(const DeviceChoice& device, const PretrainEnvironment& environment,
                          const PretrainConfig& config, const MemoryPlan& plan, const GpuMemory& gpu,
                          const ProcessGroup& world) {
  if (device.kind != DeviceKind::kCuda) return;
  require_plan_fits(world,
                    {.config = config,
                     .memory = plan,
                     .backend = device.kind,
                     .places = environment.gpu_ranks ? environment.gpu_ranks->places() : RankPlaces(),
                     .with_flags = environment.with_flags},
                    gpu);
}

/// With as much room for the tokens of experts as the GPUs of all ranks have, and says how much.
PretrainConfig with_expert_room_on(const DeviceChoice& device, const PretrainEnvironment& environment,
                                   const PretrainConfig& config, const ProcessGroup& world) {
  if (device.kind != DeviceKind::kCuda || !environment.gpu_ranks) return config;
  const GpuMemory gpu = memory_at_start(device);
  const PretrainConfig chosen = with_expert_room(config, [&](const PretrainConfig& run) {
    const MemoryPlan memory = plan_steps_on(device, environment, run).memory;
    int64_t excess = least_gpu_bytes(memory, gpu) + gpu.others - gpu.total;
    world.all_reduce({&excess, DType::kInt64, {1}, {1}}, ReduceOp::kMax, {.site = "room of experts"}).wait();
    return excess <= 0;
  });
  if (const std::string text = expert_room_text(chosen); !text.empty()) environment.progress.info(text);
  return chosen;
}

/// The GPU memory of this process beside its arena, when the model is built and all ranks are connected.
GpuMemory measured_memory(const PretrainEnvironment& environment, const RankDevice& device, Trainer& trainer) {
  const DeviceChoice& choice = device.choice;
  GpuMemory gpu = memory_at_start(choice);
  { const GpuRanks::Step all_are_connected(environment.gpu_ranks); }
  gpu.libraries =
      library_bytes(device.memory, gpu, gpu_bytes_in_use(choice), trainer.device().arena.high_water_bytes());
  return gpu;
}

/// Says on GPUs what the fullest one will hold, and after the first step what it does hold, and where attention was not
/// cuDNN's.
PretrainEnvironment with_memory_plan(const PretrainEnvironment& environment, const RankDevice& device,
                                     const ProcessGroup& world, Trainer& trainer) {
  const DeviceChoice& choice = device.choice;
  if (choice.kind != DeviceKind::kCuda) return environment;
  const GpuMemory gpu = measured_memory(environment, device, trainer);
  require_plan_fits_on(choice, environment, trainer.config(), device.memory, gpu, world);
  environment.progress.info(fullest_memory_table(world, device.memory, gpu));
  const int64_t planned = planned_gpu_bytes(device.memory, gpu);
  return with_first_step(environment, [&environment, world, planned, &choice](Trainer& stepped) {
    if constexpr (kHasCuda) {
      const std::string attention = kernels::own_attention_text(stepped.device().cuda_stream());
      if (!attention.empty()) environment.progress.info(attention);
    }
    environment.progress.info(memory_use_text(world, planned, gpu_bytes_in_use(choice)));
  });
}

/// An arena knows what it holds already; what the run would hold in all follows from its sizes, on a GPU from its plan.
OutOfMemory with_estimate(const OutOfMemory& error, const PretrainConfig& config, const RankDevice& device) {
  constexpr double kMebibyte = 1 << 20;
  if (device.choice.kind != DeviceKind::kCuda)
    return OutOfMemory(fmt::format("{}\n{}", error.what(), memory_estimate(config)));
  const int64_t planned = planned_gpu_bytes(device.memory, memory_at_start(device.choice));
  return OutOfMemory(fmt::format("{}\nIn all a rank needs about {:.0f} MiB of its GPU, by the plan of its steps.",
                                 error.what(), static_cast<double>(planned) / kMebibyte));
}

/// The work of one rank. Ranks other than 0 print nothing. @param world  of `groups`; null if they have none. @param
/// timers  that have seen how long the data took.
void run_rank(const PretrainConfig& config, const PretrainEnvironment& outside, const TrainingData& data,
              const RankDevice& rank_device, const ProcessGroupCollection& groups, World* world, Timers timers) try {
  timers.start(kModelTimer, 0);
  const DeviceChoice& device = rank_device.choice;
  const PretrainEnvironment environment = with_matmul_use(outside, rank_device.products);
  Trainer trainer(config, {.device = device.kind,
                           .num_threads = environment.num_threads,
                           .guard = environment.guard,
                           .cuda_device = device.cuda_device,
                           .capacity_bytes = rank_device.capacity_bytes,
                           .gpu_ranks = environment.gpu_ranks,
                           .connections = rank_device.connections,
                           .matmul_choices = rank_device.products,
                           .groups = groups});
  const ParameterCount count = count_parameters(trainer.model(), groups);
  environment.progress.message(parameter_count_text(count, groups));
  Checkpointer checkpointer(environment.files, config,
                            {.on_info = [&](const std::string& line) { environment.progress.info(line); },
                             .on_warning = [&](const std::string& text) { environment.progress.warning(text); }},
                            data.tokenizer(), [locks = environment.save_locks] {
                              for (const std::unique_ptr<SaveLock>& lock : locks) lock->require_held();
                            });
  timers.wait_before_reading([&] { trainer.device().synchronize(); });
  const bool loads = config.checkpoint.loads();
  timed(loads ? &timers : nullptr, kLoadTimer, 0, [&] { checkpointer.load(trainer); });
  timers.stop(kModelTimer, 0);
  if (config.checkpoint.async_save && config.checkpoint.save && !config.validation.skip_train)
    checkpointer.reserve_staging(trainer, host_memory_for_arenas(rank_device.ranks_of_host));
  require_evaluation_samples(config, data.datasets(), trainer.progress());
  milestone(environment, "after model, optimizer, and learning rate scheduler are built");

  const PretrainEnvironment told = with_memory_plan(environment, rank_device, groups.world, trainer);
  TrainingLoop loop(trainer, data, checkpointer, told, world, timers);
  if (environment.on_start) environment.on_start();
  loop.print_setup({kLoadTimer, kModelTimer, kDataTimer});
  milestone(environment, "before the start of training step");
  const bool is_complete = config.validation.skip_train || loop.train();
  milestone(environment, "after training is done");
  if (!is_complete || !config.validation.evaluates()) return;
  loop.evaluate_at_the_end();
} catch (const PlanDoesNotFit&) {
  throw;
} catch (const ThreadRefusal&) {
  throw;
} catch (const OutOfMemory& error) {
  throw with_estimate(error, config, rank_device);
}

/// Ranks as threads of this process.
void run_ranks(const PretrainConfig& config, const PretrainEnvironment& environment, const TrainingData& data,
               const Timers& timers) {
  const ParallelLayout layout = parallel_layout_of(config);
  ThreadWorld ranks(layout.sizes().world_size, config.parallel.timeout());
  const RankDevice device{.choice = {},
                          .products = {},
                          .capacity_bytes = capacity_of({}, layout.sizes().world_size),
                          .ranks_of_host = layout.sizes().world_size};
  const auto run = [&](World& world) {
    const ProcessGroupCollection groups = ProcessGroupCollection::make(world, layout);
    if (world.rank() == 0) return run_rank(config, environment, data, device, groups, &world, timers);
    SilentProgress silent;
    run_rank(config,
             {.files = environment.files,
              .progress = silent,
              .signal = environment.signal,
              .signal_name = environment.signal_name,
              .host = environment.host,
              .process_id = environment.process_id,
              .job_id = environment.job_id,
              .num_threads = environment.num_threads},
             data, device, groups, &world, timers);
  };
  run_rank_threads(ranks, run, environment.rank_hooks);
}

/// The iterations that runs before have rejected are skipped. All ranks take what rank 0 reads.
void skip_rejected_iterations(PretrainConfig& config, FileSystem& files, const ProcessGroup& world) {
  const auto& path = config.faults.result_rejected_tracker_filename;
  if (!path) return;
  const bool reads = world.rank() == 0 && files.exists(*path);
  const std::string text = broadcast_text(world, reads ? read_file(files, *path) : "", 0, "rejected iterations");
  for (const int64_t iteration : parse_rejected_iterations(text, *path))
    config.training.iterations_to_skip.push_back(iteration);
}

/// `environment` with the speed of the first rank's device, measured now.
PretrainEnvironment with_speed(const PretrainEnvironment& environment, const PretrainConfig& config,
                               const AgreedMatmulChoices& products, const ProcessGroup& world) {
  PretrainEnvironment measured = environment;
  if (!environment.measure_speed || !config.logging.measure_speed || world.rank() > 0) return measured;
  measured.speed = environment.measure_speed(config, products);
  if (!measured.speed.text.empty()) environment.progress.info(measured.speed.text);
  return measured;
}

/// Calls `build` on rank 0 first, so that the others find the caches that it writes, and then on the first rank of each
/// host, which checks these caches for the others of its host.
/// @param build  gets whether it is to check them
TrainingData build_data(const PretrainEnvironment& environment, const ProcessGroup& world,
                        const std::function<TrainingData(bool)>& build) {
  constexpr int kLastTurn = 2;
  const int turn = world.rank() == 0 ? 0 : environment.is_first_of_host ? 1 : kLastTurn;
  const auto barrier = [&] { world.barrier({.site = "data sets"}).wait(); };
  for (int i = 0; i < turn; ++i) barrier();
  TrainingData data = build(turn < kLastTurn);
  for (int i = turn; i < kLastTurn; ++i) barrier();
  milestone(environment, "after dataloaders are built");
  return data;
}

}  // namespace

void pretrain(PretrainConfig config, const Tokenizer& tokenizer, const PretrainEnvironment& outside) {
  PretrainEnvironment environment = outside;
  set_vocab_size(config, tokenizer.vocab_size());
  require_runnable(config);
  const DeviceChoice device =
      environment.device ? *environment.device : choose_device(device_needs_of(config, environment.num_threads));
  require_host_tables_fit(host_tables(config, device.kind == DeviceKind::kCpu),
                          environment.world ? environment.ranks_of_host : config.parallel.world_size,
                          host_memory_for_arenas());
  environment.progress.message(arguments_block(config));
  if (const std::string notes = notes_block(config); !notes.empty()) environment.progress.info(notes);
  environment.progress.info(device.text);
  if (!device.warning.empty()) environment.progress.warning(device.warning);
  // The first thing that ranks do together: on GPUs they connect for it, which takes seconds.
  if (environment.world) require_same_config(config, environment.files, *environment.world);

  const MessageLog log{.on_info = {},
                       .on_warning = [&](const std::string& text) { environment.progress.warning(text); }};
  const ProcessGroupCollection groups =
      environment.world ? ProcessGroupCollection::make(*environment.world, parallel_layout_of(config))
                        : ProcessGroupCollection::single();
  const auto save_locks = lock_checkpoint_folders(config, environment.files, environment.progress, groups.world,
                                                  environment.world == nullptr);
  environment.save_locks = save_locks;
  skip_rejected_iterations(config, environment.files, groups.world);
  AgreedMatmulChoices products =
      matmul_choices_for(device, config, environment.matmul_choices_folders, environment.files, groups.world);
  if (environment.on_matmul_choices) environment.on_matmul_choices(products);
  if (!products.text.empty()) environment.progress.info(products.text);
  const PretrainEnvironment measured = with_speed(environment, config, products, groups.world);
  Timers timers(static_cast<int>(config.logging.timing_log_level));
  const int64_t iteration = config.training.phase_transition_iterations
                                ? Checkpointer::iteration_to_load(environment.files, config.checkpoint)
                                : 0;
  const TrainingData data = timed(&timers, kDataTimer, 0, [&] {
    return build_data(environment, groups.world, [&](bool checks) {
      return TrainingData(config, tokenizer, log,
                          {.check_cache = checks, .iteration = iteration, .external = environment.external_data});
    });
  });
  if (environment.world) require_same_samples(data.datasets(), groups.world);
  if (config.validation.eval_interval && config.validation.evaluates() && data.num_validation_sets() == 0)
    environment.progress.warning(
        fmt::format("--eval-interval {} has no effect: there is no validation data. Give some with "
                    "--valid-data-path or a larger part of --split, or leave --eval-interval out.",
                    *config.validation.eval_interval));
  prepare_outputs(config, environment.files, groups.world.rank() == 0);
  if (!environment.world && config.parallel.world_size > 1) return run_ranks(config, measured, data, timers);
  config = with_expert_room_on(device, environment, config, groups.world);
  const StepPlan plan = plan_steps_on(device, environment, config);
  require_plan_fits_on(device, environment, config, plan.memory, memory_at_start(device), groups.world);
  run_rank(config, with_transports(measured, groups.world), data,
           {device, std::move(products.choices), capacity_of(device, environment.ranks_of_host), plan.connections,
            plan.memory, environment.ranks_of_host},
           groups, environment.world, timers);
}

}  // namespace megatron
