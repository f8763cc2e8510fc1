#include "tests/parallel/closed_form_volume.h"

#include <algorithm>
#include <numeric>

namespace megatron::testing {
namespace {

constexpr int64_t kHidden = 32, kHeads = 4, kVocabulary = 64, kTokens = 16, kLlamaGroups = 2, kLlamaFfn = 48;
constexpr int64_t kWeight = 2, kGradient = 4;  // bytes of bf16 and fp32

struct Ends {
  bool has_embedding = false, has_head = false;
};
/// Loops begin on the first rank and end on the last; the V begins and ends on the first.
Ends ends_of(const VolumeCase& layout, int64_t rank) {
  return {.has_embedding = rank == 0, .has_head = rank == (layout.is_zb_v ? 0 : layout.pp - 1)};
}

/// Returns the layers of a rank's chunk. Stages go round the ranks, in a V there and back.
int64_t layers_of(const VolumeCase& layout, int64_t rank, int64_t chunk) {
  if (layout.layers_of_stages.empty()) return layout.num_layers / layout.pp / layout.chunks;
  const int64_t stage = layout.is_zb_v && chunk == 1 ? 2 * layout.pp - 1 - rank : chunk * layout.pp + rank;
  return layout.layers_of_stages.at(static_cast<size_t>(stage));
}

int64_t num_groups(const VolumeCase& layout) { return layout.is_llama ? kLlamaGroups : kHeads; }

/// Per micro-batch: x of each of the two pairs of linears is summed over tensor ranks forward and its gradient backward
/// (Shoeybi et al. 2019, arXiv:1909.08053, section 3). With sequence parallelism these are a gather and a
/// reduce-scatter, and what was gathered is gathered again for W (Korthikanti et al. 2022, arXiv:2205.05198, section
/// 4.2.2). Recompute goes forward twice.
Volume tensor_volume(const VolumeCase& layout, int64_t rank) {
  const auto [has_embedding, has_head] = ends_of(layout, rank);
  Volume volume;
  const int64_t whole = kTokens * kHidden * kWeight, part = whole / layout.tp;
  const int64_t micro_batches = layout.num_micro_batches();
  int64_t layers = 0;
  for (int64_t chunk = 0; chunk < layout.chunks; ++chunk) layers += layers_of(layout, rank, chunk);
  const auto sum = [&](int64_t num) { volume.add(num * micro_batches, whole); };
  const auto gather = [&](int64_t num) {
    if (layout.sequence_parallel) volume.add(num * micro_batches, part);
  };
  const int64_t recomputed = layout.recomputes ? layers : 0;
  sum(4 * layers + 2 * recomputed);
  gather(6 * layers + 2 * recomputed);
  // Those of the linears that are not for W come and go in parts.
  const int64_t rows = kTokens / layout.tp, rows_of_part = (rows + layout.splits - 1) / layout.splits;
  const int64_t num_parts = (rows + rows_of_part - 1) / rows_of_part;
  volume.messages += (num_parts - 1) * (8 * layers + 4 * recomputed) * micro_batches;
  if (has_embedding) sum(1);
  if (has_embedding) gather(1);
  if (has_head) {
    sum(1);
    gather(2);
    volume.add(micro_batches, kTokens * kGradient);      // largest logits
    volume.add(micro_batches, 2 * kTokens * kGradient);  // sums of exp, logits of the labels
  }
  const int64_t norm = layout.is_llama ? kHidden : 2 * kHidden, biases = layout.is_llama ? 0 : 2 * kHidden;
  int64_t partial = 0;  // gradients of which each rank has a part
  if (layout.sequence_parallel) partial += layers * (2 * norm + biases) + (has_head ? norm : 0);
  if (num_groups(layout) < layout.tp) partial += layers * num_groups(layout) * 2 * (kHidden / kHeads) * kHidden;
  if (partial > 0) volume.add(1, partial * kGradient);
  return volume;
}

/// Hidden states and their gradients cross each border between stages on different ranks once a micro-batch (Narayanan
/// et al. 2021, arXiv:2104.04473, section 2.2): `chunks` times as many as without virtual stages. The V turns on the
/// last rank without a message.
Volume pipeline_volume(const VolumeCase& layout, int64_t rank) {
  Volume volume;
  const bool is_first = rank == 0, is_last = rank == layout.pp - 1;
  const int64_t num_borders = layout.is_zb_v ? 2 * (!is_first + !is_last) : 2 * layout.chunks - is_first - is_last;
  const int64_t hidden = kTokens * kHidden * kWeight / (layout.sequence_parallel ? layout.tp : 1);
  volume.add(2 * num_borders * layout.num_micro_batches(), hidden);
  volume.add(1, 8);  // loss
  return volume;
}

/// Elements of a tensor rank's parameters of one layer.
std::vector<int64_t> layer_sizes(const VolumeCase& layout) {
  const int64_t local_groups = std::max<int64_t>(1, num_groups(layout) / layout.tp), head = kHidden / kHeads;
  const int64_t qkv = kHidden / layout.tp + 2 * local_groups * head;
  const int64_t ffn = (layout.is_llama ? kLlamaFfn : 4 * kHidden) / layout.tp, up = layout.is_llama ? 2 * ffn : ffn;
  std::vector<int64_t> sizes = {kHidden,      kHidden,      qkv * kHidden, kHidden * kHidden / layout.tp,
                                up * kHidden, kHidden * ffn};                                      // norms, linears
  if (!layout.is_llama) sizes.insert(sizes.end(), {kHidden, kHidden, qkv, kHidden, up, kHidden});  // biases
  return sizes;
}

int64_t round_up(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

/// Elements of the buckets of a rank: one a chunk that has parameters, but where the first rank overlaps its first
/// chunk, whose buckets here hold one parameter each. With shards a parameter begins at a multiple of 64, a bucket is a
/// multiple of 128 and of the ranks that share it, and what is tied between ranks has a bucket of its own (Megatron
/// Core, distributed_data_parallel.py, param_and_grad_buffer.py).
std::vector<int64_t> bucket_sizes(const VolumeCase& layout, int64_t rank) {
  const auto [has_embedding, has_head] = ends_of(layout, rank);
  std::vector<int64_t> buckets;
  const int64_t table = kVocabulary / layout.tp * kHidden, sharers = layout.dp / layout.instances;
  const int64_t parameter = layout.shards ? 64 : 1, bucket = layout.shards ? std::lcm(sharers, int64_t{128}) : 1;
  for (int64_t chunk = 0; chunk < layout.chunks; ++chunk) {
    // The ends of the V lie on one rank: what would be tied is one parameter, of its first chunk.
    const bool embeds = has_embedding && chunk == 0, ends = has_head && chunk == layout.chunks - 1;
    std::vector<int64_t> together, apart;  // parameters
    for (int64_t layer = 0; layer < layers_of(layout, rank, chunk); ++layer)
      for (const int64_t size : layer_sizes(layout)) together.push_back(size);
    if (ends) together.insert(together.end(), layout.is_llama ? 1 : 2, kHidden);  // norm
    if (embeds && !layout.is_llama) together.push_back(kTokens * kHidden);        // positions
    const bool is_tied = !layout.is_llama && layout.pp > 1 && !layout.is_zb_v;
    const bool has_own_head = layout.is_llama || is_tied;
    std::vector<int64_t>& tables = is_tied && layout.shards ? apart : together;
    tables.insert(tables.end(), static_cast<size_t>(embeds + (ends && has_own_head)), table);
    if (layout.overlaps && rank == 0 && chunk == 0) {
      apart.insert(apart.end(), together.begin(), together.end());
    } else if (!together.empty()) {
      int64_t sum = 0;
      for (const int64_t size : together) sum += round_up(size, parameter);
      buckets.push_back(round_up(sum, bucket));
    }
    for (const int64_t size : apart) buckets.push_back(round_up(size, bucket));
  }
  return buckets;
}

/// All gradients in fp32; with shards also all weights in bf16, of which a rank sends its part. Instances sum a rank's
/// shard.
void add_data_volumes(const VolumeCase& layout, int64_t rank, Volumes& volumes) {
  const int64_t sharers = layout.dp / layout.instances;
  for (const int64_t size : bucket_sizes(layout, rank)) {
    if (sharers > 1) volumes["intra_dp_cp"].add(1, size * kGradient);
    if (sharers > 1 && layout.shards) volumes["intra_dp_cp"].add(1, size / sharers * kWeight);
    if (layout.instances > 1) volumes["inter_dist_opt"].add(1, size / sharers * kGradient);
  }
  volumes["dp_cp"].add(2, 8);  // tokens before the step; loss after it
}

}  // namespace

void PrintTo(const Volume& volume, std::ostream* out) { *out << volume.messages << " of " << volume.bytes << " bytes"; }

Volumes closed_form_volumes(const VolumeCase& layout, int64_t pipeline_rank) {
  const auto [has_embedding, has_head] = ends_of(layout, pipeline_rank);
  Volumes volumes;
  if (layout.tp > 1) volumes["tp"] = tensor_volume(layout, pipeline_rank);
  if (layout.pp > 1) volumes["pp"] = pipeline_volume(layout, pipeline_rank);
  if (layout.pp > 1 && !layout.is_llama && !layout.is_zb_v && (has_embedding || has_head))
    volumes["embd"].add(1, kVocabulary / layout.tp * kHidden * kGradient);
  if (layout.dp > 1) add_data_volumes(layout, pipeline_rank, volumes);
  if (layout.num_ranks() / layout.instances > 1) {
    Volume& norm = volumes[layout.shards ? "intra_dist_opt" : "world"];
    norm.add(1, 16);  // largest gradient, overflow of bounded extents
    norm.add(1, 32);  // sum of squares, zeros
  }
  return volumes;
}

}  // namespace megatron::testing
