// Trains the toy model on data-parallel ranks.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "megatron/comm/world.h"
#include "megatron/optimizer/optimizer.h"
#include "tests/testing/test_device.h"

namespace megatron::testing {

struct ReplicaTraining {
  int replicas = 1;
  int num_micro_batches = 6;  // of all replicas together
  int num_steps = 3;
  DType dtype = DType::kFloat64;
  DistributedDataParallelConfig ddp = {};
  OptimizerConfig optimizer = {};
  bool recompute = false;
  /// This rank's gradient of "norm1" becomes infinite in this step, before it is reduced.
  int overflow_rank = -1, overflow_step = -1;
  /// Overflows an extent that is bounded on the device instead, beside finite gradients.
  bool extent_overflows = false;
};

struct ReplicaOutcome {
  std::vector<double> losses;       // of each step, this rank's part
  std::vector<StepResult> results;  // of each step
  double params_norm = 0;
  double loss_scale = 0;
  std::map<std::string, std::vector<double>> weights;
  /// "exp_avg of x" by parameter, joined over the ranks that own parts by join_states().
  std::map<std::string, std::map<int64_t, std::vector<double>>> states;
  int64_t state_elements = 0;
  std::vector<std::string> calls;  // "op site bytes" in order of issue
  std::vector<Arena::Event> events;
  int64_t live_bytes = 0;
};

/// One rank's part; micro-batch m is that of replica m % replicas. Weights, dropout and tokens are those of one rank.
ReplicaOutcome train_replica(const ReplicaTraining& training, World& world, DeviceKind device);
/// All replicas, as threads.
std::vector<ReplicaOutcome> train_replicas(const ReplicaTraining& training);

/// Whole optimizer states out of the parts of ranks `first` ... `first + num - 1`.
std::map<std::string, std::vector<double>> join_states(const std::vector<ReplicaOutcome>& ranks, size_t first,
                                                       size_t num);

}  // namespace megatron::testing
