// Schedules as Megatron Core's own schedule functions run them: order of work, messages, tables and warm-up.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "megatron/pipeline_parallel/pipeline_schedule.h"
#include "megatron/pipeline_parallel/schedules/interleaved.h"
#include "megatron/pipeline_parallel/schedules/one_f_one_b.h"
#include "tests/testing/golden_json.h"

namespace megatron {
namespace {

using nlohmann::json;
using testing::golden_json;
using Tokens = std::vector<std::string>;

/// One rank's forwards, backwards and sends as they came, and the number of its receives. Not compared, as it has no
/// counterpart here: "c", a forward that keeps no activations because others do (we recompute all micro-batches alike);
/// "w", messages on the communicator of all ranks (ours have a group of the pipeline); where receives are posted and
/// which requests are waited for ("~"): the executor posts a message when its action comes and waits when the value is
/// read.
struct RankRecord {
  Tokens events;  // F3.1 B0.0 sn2.0 sp1.0: micro-batch, chunk
  int64_t received_from_previous = 0, received_from_next = 0;
  /// When gradients may be reduced and when weights must have come. Backwards that run while the hooks of the reduction
  /// are on; what has happened when a chunk's reduction (G1), or the gather of its weights (P1), is asked for.
  Tokens reducing;
  std::map<std::string, Tokens> before_sync;
};

RankRecord recorded(std::string text) {
  for (size_t i = text.find('+'); i != std::string::npos; i = text.find('+', i + 1))
    if (!text.substr(0, i).ends_with("sync")) text[i] = ' ';  // a batched call
  RankRecord record;
  std::istringstream words(text);
  bool reduces = true;
  for (std::string word; words >> word;) {
    if (word.starts_with("sync")) reduces = word == "sync+";
    if (word.starts_with('G') || word.starts_with('P')) record.before_sync[word] = record.events;
    if (word.starts_with('B') && reduces) record.reducing.push_back(word);
    if (word.starts_with('F') || word.starts_with('B') || word.starts_with("sn") || word.starts_with("sp")) {
      while (!std::isdigit(static_cast<unsigned char>(word.back()))) word.pop_back();  // c, w: how, not what
      record.events.push_back(word);
    }
    record.received_from_previous += word.starts_with("rp") ? 1 : 0;
    record.received_from_next += word.starts_with("rn") ? 1 : 0;
  }
  return record;
}

std::string token(std::string_view prefix, int micro_batch, int chunk) {
  return fmt::format("{}{}.{}", prefix, micro_batch, chunk);
}

RankRecord record_of(const Schedule& schedule) {
  RankRecord record;
  for (const Action& a : schedule) {
    const auto add = [&](const char* prefix) { record.events.push_back(token(prefix, a.micro_batch, a.chunk)); };
    if (a.kind == ActionKind::kF) add("F");
    if (a.kind == ActionKind::kB || a.kind == ActionKind::kBW) add("B");
    if (a.kind == ActionKind::kSendForward) add("sn");
    if (a.kind == ActionKind::kSendBackward) add("sp");
    record.received_from_previous += a.kind == ActionKind::kRecvForward ? 1 : 0;
    record.received_from_next += a.kind == ActionKind::kRecvBackward ? 1 : 0;
  }
  return record;
}

Tokens with_prefix(const Tokens& all, std::initializer_list<std::string_view> prefixes) {
  Tokens some;
  for (const std::string& t : all)
    if (std::ranges::any_of(prefixes, [&](auto prefix) { return t.starts_with(prefix); })) some.push_back(t);
  return some;
}

ScheduleOptions options_of(const json& c) {
  const bool interleaved = c.contains("v");
  ScheduleOptions options{.kind = interleaved ? ScheduleKind::kInterleaved : ScheduleKind::kOneFOneB,
                          .num_ranks = c["p"],
                          .num_chunks = c.value("v", 1),
                          .num_micro_batches = c["m"],
                          .forward_only = c.value("forward_only", false)};
  if (interleaved) options.micro_batch_group_size = c["N"].get<int>();
  return options;
}

/// Number of compute actions before each send.
std::map<std::string, std::ptrdiff_t> places_of_sends(const Tokens& events) {
  std::map<std::string, std::ptrdiff_t> places;
  std::ptrdiff_t num_computed = 0;
  for (const std::string& event : events) {
    if (event.starts_with('s'))
      places[event] = num_computed;
    else
      ++num_computed;
  }
  return places;
}

/// A chunk's last backward, behind which all of its gradients are there: ours start to be reduced during it. The
/// reference lets its hooks work in the same backwards, or asks for the reduction of a chunk later. It asks for the
/// weights of a chunk before its first forward, where ours are waited for at their first read.
void expect_same_syncs(const RankRecord& golden, const Tokens& ours) {
  const Tokens backwards = with_prefix(ours, {"B"});
  const auto of_chunk = [](const Tokens& all, const std::string& chunk) {
    Tokens some;
    for (const std::string& t : all)
      if (t.substr(t.find('.') + 1) == chunk) some.push_back(t);
    return some;
  };
  for (const auto& [sync, before] : golden.before_sync) {
    const std::string chunk = sync.substr(1);
    if (sync.starts_with('G')) {
      EXPECT_EQ(of_chunk(with_prefix(before, {"B"}), chunk), of_chunk(backwards, chunk)) << sync;
    } else {
      EXPECT_TRUE(of_chunk(with_prefix(before, {"F"}), chunk).empty()) << sync;
    }
  }
  for (const std::string& b : golden.reducing) EXPECT_EQ(b, of_chunk(backwards, b.substr(b.find('.') + 1)).back());
}

/// The messages that rank `rank` must receive, in order, from what its neighbour sent.
Tokens expected_receives(const std::vector<RankRecord>& golden, int rank, bool forward) {
  const int p = static_cast<int>(golden.size());
  const int sender = forward ? (rank + p - 1) % p : (rank + 1) % p;
  const bool goes_round = forward ? rank == 0 : rank == p - 1;
  Tokens receives;
  for (const std::string& t : with_prefix(golden[static_cast<size_t>(sender)].events, {forward ? "sn" : "sp"})) {
    const size_t dot = t.find('.');
    const int chunk = std::stoi(t.substr(dot + 1)) + (goes_round ? (forward ? 1 : -1) : 0);
    receives.push_back(token("", std::stoi(t.substr(2, dot - 2)), chunk));
  }
  return receives;
}

void expect_same(const json& c) {
  const auto ours = make_schedules(options_of(c));
  std::vector<RankRecord> golden;
  for (const json& stage : c["stages"]) golden.push_back(recorded(stage));
  // Without overlap the reference sends the results of a F and a B together, else each right away, as we do.
  const bool sends_at_once = c.value("overlap", true);
  for (size_t r = 0; r < golden.size(); ++r) {
    const RankRecord record = record_of(ours[r]);
    if (sends_at_once) {
      EXPECT_EQ(record.events, golden[r].events) << "rank " << r;
    }
    const auto own_sends = places_of_sends(record.events);
    for (const auto& [send, place] : places_of_sends(golden[r].events))
      EXPECT_LE(own_sends.at(send), place) << send << " on rank " << r;
    expect_same_syncs(golden[r], record.events);
    const auto num_asked =
        std::ranges::count_if(golden[r].before_sync, [](const auto& s) { return s.first[0] == 'G'; });
    EXPECT_EQ(std::ssize(golden[r].reducing) + num_asked, c.value("forward_only", false) ? 0 : c.value("v", 1));
    for (const auto& prefixes : {std::initializer_list<std::string_view>{"F", "B"}, {"sn"}, {"sp"}})
      EXPECT_EQ(with_prefix(record.events, prefixes), with_prefix(golden[r].events, prefixes)) << "rank " << r;
    EXPECT_EQ(record.received_from_previous, golden[r].received_from_previous);
    EXPECT_EQ(record.received_from_next, golden[r].received_from_next);
    for (const bool forward : {true, false}) {
      Tokens receives;
      for (const Action& a : ours[r])
        if (a.kind == (forward ? ActionKind::kRecvForward : ActionKind::kRecvBackward))
          receives.push_back(token("", a.micro_batch, a.chunk));
      EXPECT_EQ(receives, expected_receives(golden, static_cast<int>(r), forward)) << "rank " << r;
    }
  }
}

TEST(SchedulesGolden, OneFOneBComputesSendsAndReceivesLikeTheReference) {
  const json cases = golden_json("parallelism/schedules.json", "plain");
  ASSERT_FALSE(cases.empty());
  for (const json& c : cases) {
    SCOPED_TRACE(fmt::format("p {} m {}", c["p"].get<int>(), c["m"].get<int>()));
    expect_same(c);
  }
}

TEST(SchedulesGolden, InterleavedComputesSendsAndReceivesLikeTheReference) {
  const json cases = golden_json("parallelism/schedules.json", "interleaved");
  ASSERT_FALSE(cases.empty());
  int num_refused = 0;
  for (const json& c : cases) {
    SCOPED_TRACE(
        fmt::format("p {} v {} m {} N {}", c["p"].get<int>(), c["v"].get<int>(), c["m"].get<int>(), c["N"].get<int>()));
    if (c.contains("error")) {
      ++num_refused;
      EXPECT_THROW(make_schedules(options_of(c)), ConfigError);
    } else {
      expect_same(c);
    }
  }
  EXPECT_GT(num_refused, 0);
}

TEST(SchedulesGolden, TablesGiveTheReferenceOrder) {
  const json cases = golden_json("parallelism/schedules.json", "tables");
  ASSERT_FALSE(cases.empty());
  for (const json& c : cases) {
    const auto table = schedule_table(c["m"], c["v"], c["N"]);
    ASSERT_EQ(table.size(), c["mb"].size());
    for (size_t k = 0; k < table.size(); ++k)
      EXPECT_EQ(table[k], (ChunkVisit{.micro_batch = c["mb"][k], .chunk = c["chunk"][k]})) << c << " at " << k;
  }
}

/// Evaluation: all forwards belong to the warm-up.
void expect_warm_up_alone(const json& c) {
  json options = c;
  if (c["v"].is_null()) options.erase("v");
  const auto ours = make_schedules(options_of(options));
  for (size_t rank = 0; rank < ours.size(); ++rank) {
    const Tokens computed = with_prefix(record_of(ours[rank]).events, {"F", "B"});
    const auto& counts = c["counts"][rank];
    EXPECT_EQ(std::ssize(computed), counts[1].get<int64_t>()) << c << " rank " << rank;
    EXPECT_EQ(computed, with_prefix(computed, {"F"}));
    EXPECT_EQ(counts[0], counts[1]);
    EXPECT_EQ(counts[2], 0);
    EXPECT_EQ(counts[3], 1) << "all are of the warm-up";
  }
}

TEST(SchedulesGolden, WarmUpsHaveTheReferenceLength) {
  const json cases = golden_json("parallelism/schedules.json", "warmup");
  ASSERT_FALSE(cases.empty());
  int num_checked = 0;
  for (const json& c : cases) {
    const int p = c["p"], m = c["m"];
    // Combined forward and backward of mixtures of experts; and one rank, on which the reference counts no warm-up and
    // does not interleave.
    if (c["ep_overlap"] || (p == 1 && !c["v"].is_null())) continue;
    ++num_checked;
    if (c["forward_only"]) {
      expect_warm_up_alone(c);
      continue;
    }
    for (int rank = 0; rank < p; ++rank) {
      const Schedule order =
          c["v"].is_null()
              ? one_f_one_b(rank, p, m, WeightGradient::kFused)
              : interleaved(
                    {.num_ranks = p, .num_chunks = c["v"], .num_micro_batches = m, .micro_batch_group_size = c["N"]},
                    rank);
      const auto first = std::ranges::find_if(order, [](const Action& a) { return a.kind != ActionKind::kF; });
      const auto& counts = c["counts"][static_cast<size_t>(rank)];
      const int64_t total = counts[0], warm_up = counts[1], remaining = counts[2];
      // The steady state begins with one more forward.
      EXPECT_EQ(first - order.begin(), std::min(warm_up + 1, total)) << c << " rank " << rank;
      EXPECT_EQ(std::ssize(order), 2 * total);
      EXPECT_EQ(total - warm_up, remaining);
      EXPECT_EQ(counts[3], remaining == 0 ? 1 : 0) << "all are of the warm-up";
    }
  }
  EXPECT_GT(num_checked, 0);
}

}  // namespace
}  // namespace megatron
