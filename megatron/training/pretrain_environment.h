// The services that a training run needs from the outside world.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/comm/threads/rank_threads.h"
#include "megatron/telemetry/progress.h"
#include "megatron/training/config/pretrain_config.h"
#include "megatron/training/planning/memory_advice.h"
#include "megatron/training/startup/device_choice.h"
#include "megatron/training/training_speed.h"

namespace megatron {

class ExternalData;
class GpuRanks;
class SaveLock;
class Trainer;
class World;
struct AgreedMatmulChoices;
struct TrainStepResult;

/// Members must outlive the run.
struct PretrainEnvironment {
  FileSystem& files;
  Progress& progress;              // everything that is printed goes through message()
  const std::atomic<int>& signal;  // number of a received signal, 0 if none (--exit-signal-handler)
  std::string signal_name;
  std::string host;
  int64_t process_id = 0;
  std::string job_id;   // of the cluster's scheduler
  int num_threads = 1;  // of each rank
  bool guard = false;   // see Device::Options
  /// This process's rank among those that a launcher started; null: all ranks are threads of this process.
  World* world = nullptr;
  int ranks_of_host = 1;         // that a launcher started on this host: they share its memory
  bool is_first_of_host = true;  // among them
  RankThreadHooks rank_hooks;    // where ranks are threads
  /// Called once with what all ranks have agreed on for their matrix products. May be empty.
  std::function<void(const AgreedMatmulChoices&)> on_matmul_choices = {};
  /// Called once on the first rank, after the first step of ranks with a GPU each, with the report on how rows
  /// and messages are sent (GpuRanks::transports()). May be empty.
  std::function<void(const std::string&)> on_transports = {};
  /// Called once by every process's first rank when set-up is over: from then on `signal` is checked. May be empty.
  std::function<void()> on_start = {};
  /// Called after each training step and what it prints, on every process's first rank; for measurements. May be empty.
  std::function<void(Trainer&, const TrainStepResult&)> on_step = {};
  /// How often --straggler-ctrlr-port was asked to switch the report of stragglers, on the first rank. May be null.
  const std::atomic<int64_t>* straggler_switch = nullptr;
  /// Called once on the first rank before the data sets are built, with the resolved configuration and what all ranks
  /// have agreed on for their matmuls: what its device can do. Empty: `speed` as given.
  std::function<DeviceSpeed(const PretrainConfig&, const AgreedMatmulChoices&)> measure_speed = {};
  DeviceSpeed speed = {};  // that the speed of training is held against
  /// The run's command line with more flags, to estimate the GPU memory that it would take with them. Empty: no
  /// estimate.
  ConfigWithFlags with_flags = {};
  /// The folders where files of matmul algorithms may be: see MatmulChoicesQuery.
  std::vector<std::string> matmul_choices_folders = {};
  /// The GPU of this rank, and the ranks with which its trainer connects it. None: chosen here.
  std::optional<DeviceChoice> device = {};
  GpuRanks* gpu_ranks = nullptr;
  /// The batches of --dataloader-type external; null without it.
  const ExternalData* external_data = nullptr;
  /// Locks of the folders of checkpoints that the run writes to, set by pretrain() on rank 0; checked before a save and
  /// before it becomes visible.
  std::span<const std::unique_ptr<SaveLock>> save_locks = {};
};

}  // namespace megatron
