// Messages and bytes of one step of a rank against closed forms, group by group.
#include <gtest/gtest.h>

#include <map>

#include "megatron/comm/meta/meta_world.h"
#include "megatron/distributed/buffer_layout.h"
#include "megatron/training/config/layouts.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {
namespace {

struct Layout {
  bool is_llama = false;
  int64_t tp = 1, pp = 1, dp = 1;
  bool sequence_parallel = false, shards = false;
};

/// Of one group. Bytes are those of the rank's input; of a receive those of the message.
struct Volume {
  int64_t messages = 0, bytes = 0;
  void add(int64_t num, int64_t bytes_each) {
    messages += num;
    bytes += num * bytes_each;
  }
  bool operator==(const Volume&) const = default;
};
using Volumes = std::map<std::string, Volume>;
void PrintTo(const Volume& volume, std::ostream* out) { *out << volume.messages << " of " << volume.bytes << " bytes"; }

constexpr int64_t kLayers = 4, kBatch = 12, kHidden = 32, kHeads = 4, kVocabulary = 64, kTokens = 16;
constexpr int64_t kWeight = 2, kGradient = 4;  // bytes of bf16 and fp32

/// Per micro-batch: x of each of the two pairs of linears is summed over tensor ranks forward and its gradient
/// backward. With sequence parallelism these are a gather and a reduce-scatter, and what was gathered is gathered
/// again for W.
Volume tensor_volume(const Layout& layout, bool is_first, bool is_last) {
  Volume volume;
  const int64_t whole = kTokens * kHidden * kWeight, part = whole / layout.tp;
  const int64_t micro_batches = kBatch / layout.dp, layers = kLayers / layout.pp;
  const auto sum = [&](int64_t num) { volume.add(num * micro_batches, whole); };
  const auto gather = [&](int64_t num) {
    if (layout.sequence_parallel) volume.add(num * micro_batches, part);
  };
  sum(4 * layers);
  gather(6 * layers);
  if (is_first) sum(1);
  if (is_first) gather(1);
  if (is_last) {
    sum(1);
    gather(2);
    volume.add(micro_batches, kTokens * kGradient);      // largest logits
    volume.add(micro_batches, 2 * kTokens * kGradient);  // sums of exp, logits of the labels
  }
  const int64_t norm = layout.is_llama ? kHidden : 2 * kHidden, biases = layout.is_llama ? 0 : 2 * kHidden;
  const int64_t groups = layout.is_llama ? 2 : kHeads, head = kHidden / kHeads;
  int64_t partial = 0;  // gradients of which each rank has a part
  if (layout.sequence_parallel) partial += layers * (2 * norm + biases) + (is_last ? norm : 0);
  if (groups < layout.tp) partial += layers * groups * 2 * head * kHidden;
  if (partial > 0) volume.add(1, partial * kGradient);
  return volume;
}

/// Hidden states and their gradients cross each border between stages once a micro-batch.
Volume pipeline_volume(const Layout& layout, bool is_first, bool is_last) {
  Volume volume;
  const int64_t hidden = kTokens * kHidden * kWeight / (layout.sequence_parallel ? layout.tp : 1);
  const int64_t num_borders = (is_first ? 0 : 1) + (is_last ? 0 : 1);
  volume.add(2 * num_borders * kBatch / layout.dp, hidden);
  volume.add(1, 8);  // loss
  return volume;
}

/// All gradients in fp32; with shards padded, and all weights in bf16, of which a rank sends its part.
Volume data_volume(const Layout& layout, const std::vector<Parameter*>& parameters) {
  std::vector<BufferLayout::Entry> entries;
  for (const Parameter* p : parameters)
    entries.push_back({p->shape().num_elements(), layout.pp > 1 && !p->options().shard.tie_group.empty()});
  Volume volume;
  const BufferLayout buffer =
      BufferLayout::make(entries, {.use_distributed_optimizer = layout.shards, .data_parallel_size = layout.dp});
  for (const BufferLayout::Bucket& bucket : buffer.buckets) {
    volume.add(1, bucket.range.size() * kGradient);
    if (layout.shards) volume.add(1, bucket.range.size() / layout.dp * kWeight);
  }
  return volume;
}

Volumes expected_volumes(const Layout& layout, int64_t stage, const std::vector<Parameter*>& parameters) {
  const bool is_first = stage == 0, is_last = stage == layout.pp - 1;
  Volumes volumes;
  if (layout.tp > 1) volumes["tp"] = tensor_volume(layout, is_first, is_last);
  if (layout.pp > 1) volumes["pp"] = pipeline_volume(layout, is_first, is_last);
  if (layout.pp > 1 && !layout.is_llama && (is_first || is_last))
    volumes["embd"].add(1, kVocabulary / layout.tp * kHidden * kGradient);
  if (layout.dp > 1) {
    volumes["intra_dp_cp"] = data_volume(layout, parameters);
    volumes["dp_cp"].add(3, 8);  // tokens before the step; loss and tokens after it
  }
  if (layout.tp * layout.pp * layout.dp > 1) {
    Volume& norm = volumes[layout.shards ? "intra_dist_opt" : "world"];
    norm.add(1, 8);   // largest gradient
    norm.add(1, 32);  // sum of squares, zeros
  }
  return volumes;
}

void expect_volumes(const Layout& layout) {
  const std::string words = fmt::format(
      " --bf16 --num-layers {} --global-batch-size {} --micro-batch-size 1 --tensor-model-parallel-size {} "
      "--pipeline-model-parallel-size {}{}{}",
      kLayers, kBatch, layout.tp, layout.pp, layout.sequence_parallel ? " --sequence-parallel" : "",
      layout.shards ? " --use-distributed-optimizer" : "");
  const int num_ranks = static_cast<int>(layout.tp * layout.pp * layout.dp);
  const PretrainConfig config = small_config(layout.is_llama ? llama_like(words) : gpt2_like(words), num_ranks);
  for (int64_t stage = 0; stage < layout.pp; ++stage) {
    MetaWorld world(static_cast<int>(stage * layout.tp * layout.dp), num_ranks);
    const ProcessGroupCollection groups = ProcessGroupCollection::make(world, parallel_layout_of(config));
    Trainer trainer(config, {.device = DeviceKind::kMeta, .groups = groups});
    const int64_t first = world.recorder().num_operations();
    trainer.train_step(batches_of(config, 0));
    Volumes volumes;
    for (const OperationRecord& record : world.recorder().since(first))
      volumes[std::string(record.group)].add(1, record.bytes());
    EXPECT_EQ(volumes, expected_volumes(layout, stage, trainer.model().parameters()))
        << words << ", " << num_ranks << " ranks, stage " << stage;
  }
}

TEST(ParallelVolume, IsThatOfTheClosedForm) {
  for (const bool is_llama : {false, true})
    for (const int64_t tp : {1, 2, 4})
      for (const int64_t pp : {1, 2, 4})
        for (const int64_t dp : {1, 2, 3})
          for (const bool sequence_parallel : {false, true})
            for (const bool shards : {false, true})
              if (tp > 1 || !sequence_parallel)
                expect_volumes({.is_llama = is_llama,
                                .tp = tp,
                                .pp = pp,
                                .dp = dp,
                                .sequence_parallel = sequence_parallel,
                                .shards = shards});
}

}  // namespace
}  // namespace megatron::testing
