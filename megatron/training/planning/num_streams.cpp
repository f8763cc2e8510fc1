#include "megatron/training/planning/num_streams.h"

#include <algorithm>
#include <bit>

#include "megatron/comm/parallel_layout.h"
#include "megatron/training/config/layouts.h"

namespace megatron {
namespace {

constexpr int64_t kOfKernels = 1, kOfCopies = 2;

/// Forward and backward, with the rank that has the stage before, and with the one that has the next.
int64_t num_channels(const StagePlacement& stages, int rank) {
  int64_t number = 0;
  for (int chunk = 0; chunk < stages.num_chunks(); ++chunk) {
    const StagePlace own{rank, chunk};
    if (!stages.is_first(own) && stages.previous(own).rank != rank) number += 2;
    if (!stages.is_last(own) && stages.next(own).rank != rank) number += 2;
  }
  return number;
}

constexpr int64_t kOfRing = 4;

/// Collectives, and copies of rows beside them.
int64_t num_collective_streams() { return traits_of(GroupKind::kCp).by_copy_engine ? 2 : 1; }

/// Counts the streams of each number of ranks that may share a document.
int64_t num_hybrid_streams(const PretrainConfig& config) {
  const auto has = [&](CpCommType type) { return std::ranges::count(config.transformer.cp_comm_type, type) > 0; };
  int64_t number = 0;
  for (int64_t size = 1; size < config.parallel.num_replicas(); size *= 2)
    number += (has(CpCommType::kAllGather) ? num_collective_streams() : 0) + (has(CpCommType::kP2p) ? kOfRing : 0);
  return number;
}

/// Collectives of cp or of its first level; in a ring keys and their gradients come from one neighbour and go to the
/// other.
int64_t num_context_streams(const PretrainConfig& config) {
  const auto has = [&](CpCommType type) { return std::ranges::count(config.transformer.cp_comm_type, type) > 0; };
  const ParallelConfig& parallel = config.parallel;
  int64_t number = 0;
  if (parallel.hybrid_context_parallel) {
    number += num_hybrid_streams(config);
    const bool is_size_of_documents = std::has_single_bit(static_cast<uint64_t>(parallel.context_parallel_size)) ||
                                      parallel.context_parallel_size == parallel.num_replicas();
    if (is_size_of_documents) return number;
  }
  if (config.parallel.context_parallel_size == 1) return number;
  if (has(CpCommType::kAllGather) || has(CpCommType::kA2a)) number += num_collective_streams();
  if (has(CpCommType::kP2p)) number += kOfRing;
  if (has(CpCommType::kA2aP2p)) number += num_collective_streams() + kOfRing;
  return number;
}

}  // namespace

int64_t num_streams_of(const Connections& connections) {
  const auto copies_rows = [](const auto& item) {
    const auto& [used, use] = item;
    return !used.is_channel() && use.copies_rows();
  };
  return kOfKernels + static_cast<int64_t>(connections.size()) + std::ranges::count_if(connections, copies_rows);
}

int64_t most_streams_of(const PretrainConfig& config) {
  const ParallelConfig& parallel = config.parallel;
  const bool has_tensor = parallel.tensor_model_parallel_size > 1,
             has_stages = parallel.pipeline_model_parallel_size > 1;
  int64_t number = kOfKernels + 1;  // the world
  if (config.optimizer.optimizer_cpu_offload || config.transformer.offloads_activations()) number += kOfCopies;
  if (parallel.data_parallel_size > 1) ++number;  // dp
  if (parallel.has_replicas()) number += 2;       // intra_dp_cp, intra_dist_opt
  number += num_context_streams(config);
  if (parallel.num_distributed_optimizer_instances > 1) ++number;              // inter_dist_opt
  if (has_tensor || has_stages) ++number;                                      // mp
  if (has_tensor) number += traits_of(GroupKind::kTp).by_copy_engine ? 2 : 1;  // tp and its copies of rows
  if (!has_stages) return number;
  number += 2;  // pp, embd
  const StagePlacement stages = placement_of(schedule_options_of(config));
  int64_t channels = 0;
  for (int rank = 0; rank < stages.num_ranks(); ++rank) channels = std::max(channels, num_channels(stages, rank));
  return number + channels;
}

}  // namespace megatron
