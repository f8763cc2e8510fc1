// Messages and bytes of one training step as formulas of sizes: written down from the papers' and Megatron's counts,
// without a look at schedules, buffers or models.
#pragma once

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

namespace megatron::testing {

/// The traffic of one group. Bytes are those of the rank's input; of a receive those of the message.
struct Volume {
  int64_t messages = 0, bytes = 0;
  void add(int64_t num, int64_t bytes_each) {
    messages += num;
    bytes += num * bytes_each;
  }
  bool operator==(const Volume&) const = default;
};
using Volumes = std::map<std::string, Volume>;
void PrintTo(const Volume& volume, std::ostream* out);

/// A model like GPT-2 or Llama of small_trainer.h's sizes in bf16 with gradients in fp32, micro-batches of one sample.
struct VolumeCase {
  bool is_llama = false;
  int64_t tp = 1, pp = 1, dp = 1, chunks = 1, instances = 1;  // instances: of the distributed optimizer
  bool sequence_parallel = false, shards = false, recomputes = false, is_zb_v = false;
  /// Gradients are summed as they come, each parameter in a bucket of its own, and weights gathered one by one.
  bool overlaps = false;
  /// Rows of the products of sequence-parallel linear layers come and go in as many parts; W takes them whole.
  int64_t splits = 1;
  bool delays_weight = false;  // changes no number
  int64_t num_layers = 8, global_batch = 12;
  std::vector<int64_t> layers_of_stages = {};  // pp * chunks of them, in the model's order; none: all alike

  int64_t num_ranks() const { return tp * pp * dp; }
  int64_t num_micro_batches() const { return global_batch / dp; }
};

/// By group, of the rank with this pipeline rank.
Volumes closed_form_volumes(const VolumeCase& layout, int64_t pipeline_rank);

}  // namespace megatron::testing
