#include "megatron/pipeline_parallel/hybrid_cp_schedule.h"

#include <algorithm>
#include <bit>
#include <deque>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr double kBalanceSlack = 0.05;  // this and the next are Megatron's
constexpr double kBucketSlack = 1.1;

struct Document {
  int64_t number = 0, length = 0, num_ranks = 1;  // ranks that it needs
  double cost = 0;                                // on each of these

  double cost_on(int64_t ranks) const {
    return static_cast<double>(length) * static_cast<double>(length) / static_cast<double>(ranks);
  }
};
using Documents = std::deque<Document>;

/// Runs of documents with about equal cost, as many as there are numbers of ranks needed.
std::vector<Documents> buckets_of(const Documents& documents) {
  std::set<int64_t> sizes;
  double total = 0;
  for (const Document& document : documents) sizes.insert(document.num_ranks), total += document.cost;
  const double target = total / static_cast<double>(sizes.size());
  auto num_open = std::ssize(sizes);
  std::vector<Documents> buckets(1);
  double cost = 0;  // of the last bucket
  for (size_t i = 0; i < documents.size(); ++i) {
    const auto num_left = static_cast<int64_t>(documents.size() - i);
    const bool is_full = cost + documents[i].cost > kBucketSlack * target;
    if (!buckets.back().empty() && (is_full || num_left <= num_open - (std::ssize(buckets) - 1))) {
      buckets.emplace_back();
      cost = 0;
      --num_open;
    }
    buckets.back().push_back(documents[i]);
    cost += documents[i].cost;
  }
  return buckets;
}

/// A round in the making. Sets take ranks from 0 on; ranks behind them are free.
class Round {
 public:
  explicit Round(int64_t num_ranks) : num_free_(num_ranks) {}

  bool fits(const Document& document) const {
    return num_free_ >= document.num_ranks || least_loaded(document.num_ranks).has_value();
  }
  /// On free ranks, else on the least loaded ranks of its number.
  void add(const Document& document) {
    size_t set = sets_.size();
    if (num_free_ >= document.num_ranks) {
      sets_.push_back({.num_ranks = document.num_ranks, .load = 0, .documents = {}});
      num_free_ -= document.num_ranks;
    } else {
      set = least_loaded(document.num_ranks).value();
    }
    sets_[set].documents.push_back(document);
    sets_[set].load += document.cost;
  }
  bool is_balanced() const { return spread() <= kBalanceSlack * most_loaded()->load; }
  /// Takes the last documents of the most loaded ranks back as long as that brings the loads closer.
  void trim(Documents& left) {
    while (num_free_ == 0 && !is_balanced()) {
      const auto most = most_loaded();
      if (most->documents.size() <= 1) return;
      const double before = spread();
      const Document last = most->documents.back();
      most->load -= last.cost;
      if (spread() >= before) {
        most->load += last.cost;
        return;
      }
      most->documents.pop_back();
      left.push_back(last);
    }
  }
  /// Doubles the ranks of the first of the smallest sets while there are enough free ones. What is left of a number
  /// that is no power of two goes to the only set, or to none.
  void fill() {
    for (auto least = smallest(); num_free_ >= least->num_ranks; least = smallest()) {
      num_free_ -= least->num_ranks;
      least->num_ranks *= 2;
    }
    if (sets_.size() == 1) sets_[0].num_ranks += std::exchange(num_free_, 0);
  }
  ContextRound result() const {
    ContextRound round;
    int64_t first = 0;
    for (const Set& set : sets_) {
      ContextRankSet& added = round.emplace_back(ContextRankSet{first, set.num_ranks, {}});
      for (const Document& document : set.documents) added.documents.push_back(document.number);
      first += set.num_ranks;
    }
    return round;
  }

 private:
  struct Set {
    int64_t num_ranks = 1;
    double load = 0;
    std::vector<Document> documents;
  };
  std::vector<Set>::iterator smallest() { return std::ranges::min_element(sets_, {}, &Set::num_ranks); }
  std::vector<Set>::iterator most_loaded() { return std::ranges::max_element(sets_, {}, &Set::load); }
  std::vector<Set>::const_iterator most_loaded() const { return std::ranges::max_element(sets_, {}, &Set::load); }
  double spread() const {
    const double least = num_free_ > 0 ? 0 : std::ranges::min_element(sets_, {}, &Set::load)->load;
    return most_loaded()->load - least;
  }
  std::optional<size_t> least_loaded(int64_t num_ranks) const {
    std::optional<size_t> least;
    for (size_t i = 0; i < sets_.size(); ++i)
      if (sets_[i].num_ranks == num_ranks && (!least || sets_[i].load < sets_[*least].load)) least = i;
    return least;
  }

  std::vector<Set> sets_;
  int64_t num_free_;
};

/// A round of documents that are ordered by length; leaves those that come later.
ContextRound next_round(Documents& documents, int64_t num_ranks) {
  Round round(num_ranks);
  std::vector<Documents> buckets = buckets_of(documents);
  int64_t first_size = 0;
  bool is_smaller = false;  // whether documents with fewer ranks than the first have been placed
  while (true) {
    const auto bucket = std::ranges::find_if(
        buckets, [&](const Documents& candidates) { return !candidates.empty() && round.fits(candidates.front()); });
    if (bucket == buckets.end()) break;
    const Document document = bucket->front();
    bucket->pop_front();
    round.add(document);
    if (first_size == 0) first_size = document.num_ranks;
    is_smaller |= document.num_ranks < first_size;
    if (is_smaller && round.is_balanced()) break;
  }
  documents.clear();
  for (const Documents& left : buckets) documents.insert(documents.end(), left.begin(), left.end());
  round.trim(documents);
  round.fill();
  return round.result();
}

}  // namespace

HybridCpScheduler::HybridCpScheduler(int64_t max_seqlen_per_rank, int64_t num_ranks)
    : max_seqlen_per_rank_(max_seqlen_per_rank), num_ranks_(num_ranks) {
  require<ConfigError>(max_seqlen_per_rank > 0 && num_ranks > 0,
                       "[hybrid context parallelism] documents of {} tokens a rank on {} ranks: there must be a rank, "
                       "and it takes at least one token.",
                       max_seqlen_per_rank, num_ranks);
}

int64_t HybridCpScheduler::num_ranks_needed(int64_t length) const {
  const int64_t parts = std::max<int64_t>(1, (length + max_seqlen_per_rank_ - 1) / max_seqlen_per_rank_);
  const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(parts)));
  return parts <= num_ranks_ ? std::min(power, num_ranks_) : power;
}

std::vector<int64_t> HybridCpScheduler::set_sizes() const {
  std::vector<int64_t> sizes;
  for (int64_t size = 1; size < num_ranks_; size *= 2) sizes.push_back(size);
  sizes.push_back(num_ranks_);
  return sizes;
}

std::vector<ContextRound> HybridCpScheduler::rounds(std::span<const int64_t> lengths) const {
  Documents documents;
  for (size_t i = 0; i < lengths.size(); ++i) {
    Document& document = documents.emplace_back(Document{
        .number = static_cast<int64_t>(i), .length = lengths[i], .num_ranks = num_ranks_needed(lengths[i]), .cost = 0});
    document.cost = document.cost_on(document.num_ranks);
    require<ConfigError>(document.num_ranks <= num_ranks_,
                         "[hybrid context parallelism] a document of {} tokens needs {} ranks with at most {} tokens "
                         "each, there are {}. Raise --max-seqlen-per-dp-cp-rank.",
                         document.length, document.num_ranks, max_seqlen_per_rank_, num_ranks_);
  }
  std::ranges::stable_sort(documents, std::greater<>(), &Document::length);
  std::vector<ContextRound> rounds;
  while (!documents.empty()) rounds.push_back(next_round(documents, num_ranks_));
  return rounds;
}

}  // namespace megatron
