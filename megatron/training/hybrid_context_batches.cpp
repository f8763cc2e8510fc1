#include "megatron/training/hybrid_context_batches.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

#include "megatron/comm/texts.h"
#include "megatron/pipeline_parallel/hybrid_cp_schedule.h"

namespace megatron {
namespace {

/// The values of all ranks, one rank after the other.
template <class T>
std::vector<T> gather_values(const ProcessGroup& group, const std::vector<T>& own) {
  std::string bytes(own.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), own.data(), bytes.size());
  std::vector<T> all;
  for (const std::string& text : gather_texts(group, bytes, "documents of all data-parallel ranks")) {
    const size_t before = all.size();
    all.resize(before + text.size() / sizeof(T));
    std::memcpy(all.data() + before, text.data(), text.size());
  }
  return all;
}

/// A document of the global batch.
struct GlobalDocument {
  size_t sample = 0;  // number among the gathered samples
  int64_t global_sample = 0;
  PositionRange tokens;
};

/// The samples of all data-parallel ranks: rank by rank, and in each micro-batch by micro-batch.
class GlobalBatch {
 public:
  GlobalBatch(const MicroBatches& whole, const ProcessGroup& dp);

  std::vector<GlobalDocument> documents() const;
  /// With its length rounded up to a multiple, as a micro-batch of its own.
  OwnedBatch batch_of(const GlobalDocument& document, int64_t multiple) const;
  int64_t length() const { return length_; }

 private:
  void gather_tensors(const MicroBatches& whole, const ProcessGroup& dp);
  void gather_sequences(const MicroBatches& whole, const ProcessGroup& dp);
  int64_t global_sample(int64_t sample) const;

  int64_t length_, num_samples_, num_batches_, num_ranks_;  // of a sample; in a micro-batch; on a rank
  std::string sequences_;                                   // their name
  std::vector<OwnedBatch::Values> tensors_;
  std::vector<int32_t> cuts_;
  std::vector<int64_t> num_cuts_, position_ids_;  // of each sample; [samples, length]
};

GlobalBatch::GlobalBatch(const MicroBatches& whole, const ProcessGroup& dp)
    : length_(whole[0].sequence_length),
      num_samples_(whole[0].num_samples),
      num_batches_(std::ssize(whole)),
      num_ranks_(dp.size()) {
  gather_tensors(whole, dp);
  gather_sequences(whole, dp);
}

void GlobalBatch::gather_tensors(const MicroBatches& whole, const ProcessGroup& dp) {
  const HostBatch first = whole[0];
  for (size_t i = 0; i < first.tensors.size(); ++i)
    std::visit(
        [&]<class T>(std::span<const T>) {
          std::vector<T> own;
          for (size_t m = 0; m < whole.size(); ++m) {
            const auto values = std::get<std::span<const T>>(whole[m].tensors[i].values);
            own.insert(own.end(), values.begin(), values.end());
          }
          tensors_.push_back({std::string(first.tensors[i].name), gather_values(dp, own)});
        },
        first.tensors[i].values);
}

void GlobalBatch::gather_sequences(const MicroBatches& whole, const ProcessGroup& dp) {
  std::vector<int32_t> cuts;
  std::vector<int64_t> num_cuts, position_ids;
  for (size_t m = 0; m < whole.size(); ++m) {
    const HostBatch batch = whole[m];
    const HostSequences& sequences = batch.sequences.at(0);
    require<ShapeError>(batch.sequences.size() == 1 && sequences.length == length_ && batch.num_samples == num_samples_,
                        "[hybrid context parallelism] micro-batches of {} samples of {} tokens differ from the first: "
                        "they must have one kind of sequences and one size.",
                        batch.num_samples, sequences.length);
    sequences_ = sequences.name;
    cuts.insert(cuts.end(), sequences.cuts.begin(), sequences.cuts.end());
    for (int64_t sample = 0; sample < num_samples_; ++sample) num_cuts.push_back(std::ssize(sequences.cuts_of(sample)));
    position_ids.insert(position_ids.end(), sequences.position_ids.begin(), sequences.position_ids.end());
  }
  cuts_ = gather_values(dp, cuts);
  num_cuts_ = gather_values(dp, num_cuts);
  position_ids_ = gather_values(dp, position_ids);
}

/// Micro-batch m of all ranks lies before micro-batch m + 1 in the global batch, in the order of the ranks.
int64_t GlobalBatch::global_sample(int64_t sample) const {
  const int64_t in_batch = sample % num_samples_, batch = sample / num_samples_ % num_batches_;
  const int64_t rank = sample / (num_samples_ * num_batches_);
  return (batch * num_ranks_ + rank) * num_samples_ + in_batch;
}

std::vector<GlobalDocument> GlobalBatch::documents() const {
  std::vector<GlobalDocument> documents;
  size_t first_cut = 0;
  for (size_t sample = 0; sample < num_cuts_.size(); ++sample) {
    const auto number = static_cast<size_t>(num_cuts_[sample]);
    for (const PositionRange& tokens : documents_of(std::span(cuts_).subspan(first_cut, number), length_))
      documents.push_back({sample, global_sample(static_cast<int64_t>(sample)), tokens});
    first_cut += number;
  }
  return documents;
}

OwnedBatch GlobalBatch::batch_of(const GlobalDocument& document, int64_t multiple) const {
  const int64_t length = (document.tokens.size() + multiple - 1) / multiple * multiple;
  const auto begin = static_cast<std::ptrdiff_t>(document.sample) * length_ + document.tokens.begin;
  const auto part = [&](const auto& all) {
    auto own = all;
    own.assign(all.begin() + begin, all.begin() + begin + document.tokens.size());
    own.resize(static_cast<size_t>(length));
    return own;
  };
  OwnedBatch batch{.num_samples = 1, .sequence_length = length, .num_valid_tokens = 0, .tensors = {}, .sequences = {}};
  for (const OwnedBatch::Values& tensor : tensors_)
    batch.tensors.push_back(
        {tensor.name, std::visit([&](const auto& all) { return decltype(tensor.values)(part(all)); }, tensor.values)});
  for (const OwnedBatch::Values& tensor : batch.tensors)
    if (const auto* mask = std::get_if<std::vector<float>>(&tensor.values); mask && tensor.name == kLossMask)
      batch.num_valid_tokens = length - std::ranges::count(*mask, 0.0F);
  batch.sequences.push_back(
      {.name = sequences_, .length = length, .cuts = {}, .cut_ends = {0}, .position_ids = part(position_ids_)});
  return batch;
}

}  // namespace

ContextBatches hybrid_context_batches(const MicroBatches& whole, const ProcessGroupCollection& groups,
                                      const HybridContextOptions& options) {
  const GlobalBatch all(whole, groups.dp);
  const std::vector<GlobalDocument> documents = all.documents();
  std::vector<int64_t> lengths;
  lengths.reserve(documents.size());
  for (const GlobalDocument& document : documents) lengths.push_back(document.tokens.size());
  const int64_t own_rank = groups.dp_cp.rank(), num_ranks = groups.dp_cp.size();
  std::vector<OwnedBatch> own;
  std::vector<BatchPlace> places;
  for (const ContextRound& round : HybridCpScheduler(options.max_seqlen_per_rank, num_ranks).rounds(lengths))
    for (const ContextRankSet& set : round) {
      if (own_rank < set.first_rank || own_rank >= set.first_rank + set.num_ranks) continue;
      for (const int64_t number : set.documents) {
        const GlobalDocument& document = documents[static_cast<size_t>(number)];
        const int64_t rows = set.num_ranks > 1 ? 2 * set.num_ranks * options.row_multiple : options.row_multiple;
        OwnedBatch batch = all.batch_of(document, rows);
        const ContextCut cut{.rank = own_rank - set.first_rank, .size = set.num_ranks, .length = batch.sequence_length};
        own.push_back(cut.size > 1 ? part_of_rank(host_batch_of(batch), cut) : std::move(batch));
        places.push_back({.rank = cut.rank,
                          .size = cut.size,
                          .sample = document.global_sample,
                          .sample_length = all.length(),
                          .first_position = document.tokens.begin});
      }
    }
  return {std::move(own), std::move(places)};
}

}  // namespace megatron
