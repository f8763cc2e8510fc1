#include "megatron/training/hybrid_context_batches.h"

#include <algorithm>
#include <utility>

#include "megatron/pipeline_parallel/hybrid_cp_schedule.h"
#include "megatron/training/global_batch.h"

namespace megatron {
namespace {

/// The micro-batches of a rank: a document that it shares with others, or documents that it has alone, one after the
/// other, as many as have room. All ranks take part in the collectives of a step: a rank without documents has a
/// micro-batch of padding.
class RankBatches {
 public:
  RankBatches(const GlobalBatch& all, const HybridContextOptions& options) : all_(all), options_(options) {}

  /// Micro-batches are in the order of the documents. @param rank  among the ranks that share the document, of which
  /// there are `num_ranks`
  void add(const GlobalDocument& document, int64_t rank, int64_t num_ranks) {
    if (num_ranks > 1) {
      close();
      return add_shared(document, {.rank = rank, .size = num_ranks});
    }
    if (num_open_rows_ + document.tokens.size() > options_.max_seqlen_per_rank) close();
    open_.push_back(document);
    num_open_rows_ += document.tokens.size();
  }
  ContextBatches finish() {
    close();
    if (own_.empty()) add_open();
    return {std::move(own_), std::move(places_)};
  }

 private:
  void close() {
    if (!open_.empty()) add_open();
  }
  void add_shared(const GlobalDocument& document, ContextCut cut) {
    cut.length = padded(document.tokens.size(), 2 * cut.size * options_.row_multiple);
    own_.push_back(part_of_rank(host_batch_of(all_.batch_of(std::span(&document, 1), cut.length)), cut));
    places_.push_back({.rank = cut.rank,
                       .size = cut.size,
                       .sample = document.global_sample,
                       .sample_length = all_.sample_length(),
                       .first_position = document.tokens.begin});
  }
  void add_open() {
    const int64_t num_rows = padded(num_open_rows_, options_.row_multiple);
    own_.push_back(all_.batch_of(open_, num_rows));
    BatchPlace& place = places_.emplace_back();
    for (const GlobalDocument& document : open_) {
      const int64_t first = document.global_sample * all_.sample_length();
      for (int64_t i = document.tokens.begin; i < document.tokens.end; ++i)
        place.row_numbers.push_back(static_cast<int32_t>(first + i));
    }
    place.row_numbers.resize(static_cast<size_t>(num_rows));
    open_.clear();
    num_open_rows_ = 0;
  }
  static int64_t padded(int64_t length, int64_t multiple) {
    return std::max<int64_t>(1, (length + multiple - 1) / multiple) * multiple;
  }

  const GlobalBatch& all_;
  const HybridContextOptions& options_;
  std::vector<GlobalDocument> open_;  // of the next micro-batch
  int64_t num_open_rows_ = 0;
  std::vector<OwnedBatch> own_;
  std::vector<BatchPlace> places_;
};

}  // namespace

ContextBatches hybrid_context_batches(const MicroBatches& whole, const ProcessGroupCollection& groups,
                                      const HybridContextOptions& options) {
  const GlobalBatch all = GlobalBatch::gather(whole, groups);
  const std::vector<GlobalDocument> documents = all.documents();
  std::vector<int64_t> lengths;
  lengths.reserve(documents.size());
  for (const GlobalDocument& document : documents) lengths.push_back(document.tokens.size());
  const int64_t own_rank = groups.dp_cp.rank(), num_ranks = groups.dp_cp.size();
  RankBatches own(all, options);
  for (const ContextRound& round : HybridCpScheduler(options.max_seqlen_per_rank, num_ranks).rounds(lengths))
    for (const ContextRankSet& set : round)
      if (own_rank >= set.first_rank && own_rank < set.first_rank + set.num_ranks)
        for (const int64_t number : set.documents)
          own.add(documents[static_cast<size_t>(number)], own_rank - set.first_rank, set.num_ranks);
  return own.finish();
}

ContextBatches longest_hybrid_batches(const MicroBatches& whole, const ProcessGroupCollection& groups,
                                      const HybridContextOptions& options) {
  const GlobalBatch blank = GlobalBatch::of_one_rank(whole.first(1));
  const auto document = [](int64_t length) { return GlobalDocument{.tokens = {0, length}}; };
  const int64_t own_rank = groups.dp_cp.rank(), num_ranks = groups.dp_cp.size();
  const int64_t most = options.max_seqlen_per_rank, longest = blank.sample_length();
  RankBatches own(blank, options);
  for (int64_t left = most; left > 0; left -= longest) own.add(document(std::min(left, longest)), 0, 1);
  for (const int64_t size : HybridCpScheduler(most, num_ranks).set_sizes()) {
    const int64_t first_rank = own_rank / size * size;
    if (size > 1 && first_rank + size <= num_ranks)
      own.add(document(std::min(size * most, longest)), own_rank - first_rank, size);
  }
  return own.finish();
}

}  // namespace megatron
