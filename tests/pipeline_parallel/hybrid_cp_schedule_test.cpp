// Schedules of documents on as many ranks each as they need.
#include "megatron/pipeline_parallel/hybrid_cp_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

#include "megatron/base/error.h"
#include "megatron/core/random.h"
#include "tests/testing/golden_json.h"

namespace megatron::testing {
namespace {

using RankDocuments = std::vector<std::vector<int64_t>>;

/// Returns the documents that each rank computes in a round.
RankDocuments of_ranks(const ContextRound& round) {
  RankDocuments ranks;
  for (const ContextRankSet& set : round) {
    EXPECT_EQ(std::ssize(ranks), set.first_rank);
    EXPECT_EQ(set.first_rank % set.num_ranks, 0) << "the ranks of a process group";
    ranks.insert(ranks.end(), static_cast<size_t>(set.num_ranks), set.documents);
  }
  return ranks;
}

TEST(HybridCpSchedule, IsThatOfMegatron) {
  for (const nlohmann::json& example : golden_json("parallelism/context.json", "schedule")) {
    const auto lengths = example["docs"].get<std::vector<int64_t>>();
    const HybridCpScheduler scheduler(example["max_seqlen"], example["ranks"]);
    for (size_t i = 0; i < lengths.size(); ++i)
      EXPECT_EQ(scheduler.num_ranks_needed(lengths[i]), example["cp_size"][i].get<int64_t>());
    std::vector<RankDocuments> rounds;
    for (const ContextRound& round : scheduler.rounds(lengths)) rounds.push_back(of_ranks(round));
    EXPECT_EQ(rounds, example["groups"].get<std::vector<RankDocuments>>()) << example;
  }
}

TEST(HybridCpSchedule, RejectsWhatDoesNotFit) {
  EXPECT_THROW(HybridCpScheduler(0, 4), ConfigError);
  EXPECT_THROW(HybridCpScheduler(64, 0), ConfigError);
  const std::vector<int64_t> too_long{4, 257};
  EXPECT_THROW(HybridCpScheduler(64, 4).rounds(too_long), ConfigError);
}

/// A long-tailed mix of up to 64k tokens: most documents are short, few have most of the tokens.
std::vector<int64_t> long_tailed_mix(int64_t num_documents) {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < num_documents; ++i) {
    const double u = uniform(RandomKey::from_seed(7).at("lengths"), i);
    lengths.push_back(std::min<int64_t>(65536, static_cast<int64_t>(256 / (1.0 - u))));
  }
  return lengths;
}

/// Sets of a power of two of ranks or of all, each the ranks of a process group.
void expect_sets_of_groups(const ContextRound& round, int64_t num_ranks) {
  int64_t end = 0, smallest = num_ranks;
  for (const ContextRankSet& set : round) {
    EXPECT_EQ(set.first_rank, end);
    end += set.num_ranks;
    smallest = std::min(smallest, set.num_ranks);
    EXPECT_EQ(set.first_rank % set.num_ranks, 0);
    EXPECT_TRUE(set.num_ranks == num_ranks || std::has_single_bit(static_cast<uint64_t>(set.num_ranks)));
    EXPECT_FALSE(set.documents.empty());
  }
  EXPECT_LE(end, num_ranks);
  EXPECT_LT(num_ranks - end, smallest) << "idle ranks that would make a set of documents";
}

TEST(HybridCpSchedule, OfAnyNumberOfRanksHasEachDocumentOnceOnRanksThatHaveRoom) {
  constexpr int64_t kMost = 8192;
  for (const int64_t num_ranks : {1, 2, 3, 5, 6, 7, 12}) {
    std::vector<int64_t> lengths = long_tailed_mix(200), times(lengths.size(), 0);
    for (int64_t& length : lengths) length = std::min(length, num_ranks * kMost);
    for (const ContextRound& round : HybridCpScheduler(kMost, num_ranks).rounds(lengths)) {
      SCOPED_TRACE(num_ranks);
      expect_sets_of_groups(round, num_ranks);
      for (const ContextRankSet& set : round)
        for (const int64_t document : set.documents) {
          ++times[static_cast<size_t>(document)];
          EXPECT_LE(lengths[static_cast<size_t>(document)], set.num_ranks * kMost);
        }
    }
    EXPECT_EQ(std::ranges::count(times, 1), std::ssize(times)) << num_ranks;
  }
}

/// Time of a document on a rank in units of one token's linear layers: a token of attention over `kBalance` others
/// costs as much as these, and one that is sent to another rank costs `kSent`.
constexpr double kBalance = 16384, kSent = 0.25;
double cost_of(double length, double num_ranks) {
  return (length + length * length / (2 * kBalance)) / num_ranks + kSent * length * (num_ranks - 1) / num_ranks;
}

/// All documents on all ranks, as a static layout of that many context-parallel ranks has them.
double static_time(const std::vector<int64_t>& lengths, int64_t num_ranks) {
  double time = 0;
  for (const int64_t length : lengths) time += cost_of(static_cast<double>(length), static_cast<double>(num_ranks));
  return time;
}

TEST(HybridCpSchedule, OfALongTailedMixIsFasterThanAStaticOneUpToTheBound) {
  constexpr int64_t kRanks = 8, kMost = 65536 / kRanks;
  const std::vector<int64_t> lengths = long_tailed_mix(512);
  const auto cost = [&](int64_t document, int64_t num_ranks) {
    return cost_of(static_cast<double>(lengths[static_cast<size_t>(document)]), static_cast<double>(num_ranks));
  };
  const double dynamic = simulated_time(HybridCpScheduler(kMost, kRanks).rounds(lengths), kRanks, cost);
  // No schedule beats equal shares of the work with each document on the ranks that it needs at least.
  double bound = 0;
  for (size_t i = 0; i < lengths.size(); ++i) {
    const int64_t needed = HybridCpScheduler(kMost, kRanks).num_ranks_needed(lengths[i]);
    bound += cost(static_cast<int64_t>(i), needed) * static_cast<double>(needed) / kRanks;
  }
  const double speed_up = static_time(lengths, kRanks) / dynamic, most = static_time(lengths, kRanks) / bound;
  RecordProperty("speed_up", fmt::format("{:.3f}", speed_up));
  RecordProperty("bound", fmt::format("{:.3f}", most));
  EXPECT_GT(speed_up, 1.2);
  EXPECT_LE(speed_up, most);
}

}  // namespace
}  // namespace megatron::testing
