#include "tests/parallel/document_mix.h"

#include <algorithm>

#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

void cut_at(const Mix& cuts_of_samples, MicroBatch<int64_t>& batch) {
  batch.cuts.clear();
  batch.cut_ends.clear();
  batch.position_ids.clear();
  for (const Cuts& cuts : cuts_of_samples) {
    batch.cuts.insert(batch.cuts.end(), cuts.begin(), cuts.end());
    batch.cut_ends.push_back(std::ssize(batch.cuts));
    int64_t begin = 0;
    for (int64_t i = 0; i < batch.sequence_length; ++i) {
      if (std::ranges::count(cuts, i) > 0) begin = i;
      batch.position_ids.push_back(i - begin);
    }
  }
}

}  // namespace

std::vector<MicroBatch<int64_t>> batches_of_mix(const Trainer& trainer, int64_t step, const Mix& mix) {
  const ProcessGroup& dp = trainer.groups().dp;
  std::vector<MicroBatch<int64_t>> batches = batches_of(trainer.config(), step, dp.rank());
  for (size_t m = 0; m < batches.size(); ++m) {
    Mix own;
    const int64_t b = batches[m].num_samples;
    const int64_t first = (static_cast<int64_t>(m) * dp.size() + dp.rank()) * b;
    for (int64_t sample = first; sample < first + b; ++sample)
      own.push_back(mix[static_cast<size_t>(sample) % mix.size()]);
    cut_at(own, batches[m]);
  }
  return batches;
}

}  // namespace megatron::testing
