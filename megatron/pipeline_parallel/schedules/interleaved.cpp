#include "megatron/pipeline_parallel/schedules/interleaved.h"

#include <algorithm>

#include "megatron/pipeline_parallel/schedules/backward.h"

namespace megatron {

std::vector<ChunkVisit> schedule_table(int num_micro_batches, int num_chunks, int micro_batch_group_size) {
  std::vector<ChunkVisit> table;
  for (int first = 0; first < num_micro_batches; first += micro_batch_group_size)
    for (int chunk = 0; chunk < num_chunks; ++chunk)
      for (int m = first; m < std::min(first + micro_batch_group_size, num_micro_batches); ++m)
        table.push_back({.micro_batch = m, .chunk = chunk});
  return table;
}

int num_warm_up(const InterleavedOptions& options, int rank) {
  const int depth = options.num_ranks - rank - 1;
  const int wanted = 2 * depth + (options.num_chunks - 1) * options.micro_batch_group_size;
  return std::min(wanted, options.num_micro_batches * options.num_chunks);
}

Schedule interleaved(const InterleavedOptions& options, int rank) {
  const auto table = schedule_table(options.num_micro_batches, options.num_chunks, options.micro_batch_group_size);
  const size_t total = table.size(), warm_up = static_cast<size_t>(num_warm_up(options, rank));
  Schedule schedule;
  const auto forward = [&](const ChunkVisit& visit) {
    schedule.push_back({.kind = ActionKind::kF, .chunk = visit.chunk, .micro_batch = visit.micro_batch});
  };
  const auto backward = [&](const ChunkVisit& visit) {
    add_backward(schedule, options.num_chunks - 1 - visit.chunk, visit.micro_batch, options.weight_gradient);
  };
  for (size_t k = 0; k < warm_up; ++k) forward(table[k]);
  for (size_t k = warm_up; k < total; ++k) {
    forward(table[k]);
    backward(table[k - warm_up]);
  }
  for (size_t k = total - warm_up; k < total; ++k) backward(table[k]);
  return schedule;
}

}  // namespace megatron
