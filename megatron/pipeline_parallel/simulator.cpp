#include "megatron/pipeline_parallel/simulator.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

#include "megatron/base/error.h"
#include "megatron/pipeline_parallel/communication.h"

namespace megatron {
namespace {

enum Direction : size_t { kForward, kBackward };
constexpr double kNever = std::numeric_limits<double>::quiet_NaN();

/// Times by virtual stage and micro-batch; kNever until known.
class Times {
 public:
  Times(int num_stages, int num_micro_batches)
      : num_micro_batches_(static_cast<size_t>(num_micro_batches)),
        times_(static_cast<size_t>(num_stages) * num_micro_batches_, kNever) {}
  double& at(int stage, int micro_batch) {
    return times_[static_cast<size_t>(stage) * num_micro_batches_ + static_cast<size_t>(micro_batch)];
  }
  bool has(int stage, int micro_batch) { return !std::isnan(at(stage, micro_batch)); }

 private:
  size_t num_micro_batches_;
  std::vector<double> times_;
};

/// The sends over one border in one direction, in the order of both sides.
struct Channel {
  struct Message {
    int micro_batch;
    double time;
  };
  std::vector<Message> sent, received;  // received: posted buffers
  size_t num_matched() const { return std::min(sent.size(), received.size()); }
};

std::string describe(const Action& a) {
  return fmt::format("{} of micro-batch {}, chunk {}", name_of(a.kind), a.micro_batch, a.chunk);
}

class Simulator {
 public:
  Simulator(const std::vector<Schedule>& schedules, const StagePlacement& placement, const SimulationOptions& options)
      : schedules_(schedules),
        placement_(placement),
        options_(options),
        num_micro_batches_(count_micro_batches(schedules)),
        forward_done_(placement.num_stages(), num_micro_batches_),
        backward_done_(placement.num_stages(), num_micro_batches_),
        weight_done_(placement.num_stages(), num_micro_batches_),
        arrived_{Times(placement.num_stages(), num_micro_batches_), Times(placement.num_stages(), num_micro_batches_)},
        channels_{std::vector<Channel>(static_cast<size_t>(placement.num_stages())),
                  std::vector<Channel>(static_cast<size_t>(placement.num_stages()))},
        positions_(schedules.size()),
        clocks_(schedules.size()),
        live_(schedules.size()) {
    require(std::ssize(schedules) == placement.num_ranks(), "[simulate] {} schedules for {} ranks.", schedules.size(),
            placement.num_ranks());
    require(options.costs.size() == 1 || std::ssize(options.costs) == placement.num_stages(),
            "[simulate] {} costs for {} virtual stages: give one for all or one for each.", options.costs.size(),
            placement.num_stages());
    for (const Schedule& schedule : schedules)
      for (const Action& a : schedule) has_backward_ |= a.kind == ActionKind::kB || a.kind == ActionKind::kBW;
  }

  Simulation run() {
    result_.ranks.resize(schedules_.size());
    for (bool moves = true; moves;) {
      moves = false;
      for (int rank = 0; rank < placement_.num_ranks(); ++rank)
        while (!is_done(rank) && step(rank)) moves = true;
    }
    refuse_deadlock();
    refuse_gaps();
    for (double clock : clocks_) result_.makespan = std::max(result_.makespan, clock);
    return std::move(result_);
  }

 private:
  static int count_micro_batches(const std::vector<Schedule>& schedules) {
    int count = 0;
    for (const Schedule& schedule : schedules)
      for (const Action& a : schedule) {
        require(a.micro_batch >= 0 && a.first_segment == 0 && a.end_segment == Action{}.end_segment,
                "[simulate] {}: only whole chunks and micro-batches from 0 on can be simulated.", describe(a));
        count = std::max(count, a.micro_batch + 1);
      }
    return count;
  }
  const Action& next_action(int rank) const {
    return schedules_[static_cast<size_t>(rank)][positions_[static_cast<size_t>(rank)]];
  }
  bool is_done(int rank) const {
    return positions_[static_cast<size_t>(rank)] == schedules_[static_cast<size_t>(rank)].size();
  }
  const ActionCosts& costs_of(int stage) const {
    return options_.costs[options_.costs.size() == 1 ? 0 : static_cast<size_t>(stage)];
  }
  /// The border between two stages has the number of the earlier one.
  Channel& channel(Direction direction, int border) { return channels_[direction][static_cast<size_t>(border)]; }

  /// Runs the rank's next action if its inputs are ready. @return whether it did.
  bool step(int rank) {
    const Action& a = next_action(rank);
    const int stage = placement_.stage_of({.rank = rank, .chunk = a.chunk});
    bool is_ready = true;
    switch (a.kind) {
      case ActionKind::kF:
        is_ready = compute(rank, stage, a, input_of(rank, stage, kForward, a.micro_batch));
        break;
      case ActionKind::kB:
      case ActionKind::kBW:
        require_before(forward_done_.has(stage, a.micro_batch), rank, a, "its F");
        is_ready = compute(rank, stage, a, input_of(rank, stage, kBackward, a.micro_batch));
        break;
      case ActionKind::kW:
        require_before(backward_done_.has(stage, a.micro_batch), rank, a, "its B");
        is_ready = compute(rank, stage, a, 0);
        break;
      case ActionKind::kSendForward:
        require_before(forward_done_.has(stage, a.micro_batch), rank, a, "its F");
        is_ready = send(rank, kForward, stage, stage + 1, a);
        break;
      case ActionKind::kSendBackward:
        require_before(backward_done_.has(stage, a.micro_batch), rank, a, "its B");
        is_ready = send(rank, kBackward, stage, stage - 1, a);
        break;
      case ActionKind::kRecvForward:
        receive(rank, kForward, stage, stage - 1, a);
        break;
      case ActionKind::kRecvBackward:
        receive(rank, kBackward, stage, stage + 1, a);
        break;
    }
    if (is_ready) ++positions_[static_cast<size_t>(rank)];
    return is_ready;
  }

  void require_before(bool is_there, int rank, const Action& a, const char* what) const {
    require(is_there, "[simulate] rank {}: {} comes before {}.", rank, describe(a), what);
  }

  /// The time when the input of a F or B is on its rank; kNever if that is not known yet.
  double input_of(int rank, int stage, Direction direction, int micro_batch) {
    const int producer = direction == kForward ? stage - 1 : stage + 1;
    if (producer < 0) return 0;
    if (producer == placement_.num_stages()) return forward_done_.at(stage, micro_batch);
    const bool is_own = placement_.place_of(producer).rank == rank;
    if (!is_own && options_.has_messages) return arrived_[direction].at(stage, micro_batch);
    Times& done = direction == kForward ? forward_done_ : backward_done_;
    return done.at(producer, micro_batch) + (is_own ? 0 : options_.send_latency);
  }

  bool compute(int rank, int stage, const Action& a, double ready) {
    if (std::isnan(ready)) return false;
    const ActionCosts& costs = costs_of(stage);
    const bool is_forward = a.kind == ActionKind::kF, has_b = !is_forward && a.kind != ActionKind::kW;
    const bool has_w = a.kind == ActionKind::kW || a.kind == ActionKind::kBW;
    double& clock = clocks_[static_cast<size_t>(rank)];
    RankTimeline& line = result_.ranks[static_cast<size_t>(rank)];
    const double cost = (is_forward ? costs.forward : 0) + (has_b ? costs.backward : 0) + (has_w ? costs.weight : 0);
    const double start = std::max(clock, ready);
    clock = start + cost;
    line.busy += cost;
    line.actions.push_back({a, start, clock});
    const auto finish = [&](Times& times) {
      require(!times.has(stage, a.micro_batch), "[simulate] rank {}: {} comes twice.", rank, describe(a));
      times.at(stage, a.micro_batch) = clock;
    };
    if (is_forward) finish(forward_done_);
    if (has_b) finish(backward_done_);
    if (has_w) finish(weight_done_);
    double& live = live_[static_cast<size_t>(rank)];
    if (is_forward && has_backward_) live += 1;
    line.peak_activations = std::max(line.peak_activations, live);
    if (has_b) live -= 1 - options_.kept_for_weight;
    if (has_w) live -= options_.kept_for_weight;
    return true;
  }

  /// The other side of a send or receive of `stage`, which must be on another rank.
  void check_peer(int rank, const Action& a, int peer_stage) const {
    require(peer_stage >= 0 && peer_stage < placement_.num_stages(), "[simulate] rank {}: {} has no neighbour there.",
            rank, describe(a));
    require(placement_.place_of(peer_stage).rank != rank,
            "[simulate] rank {}: {} is to the rank itself, which needs no send.", rank, describe(a));
  }

  bool send(int rank, Direction direction, int stage, int peer_stage, const Action& a) {
    check_peer(rank, a, peer_stage);
    Channel& messages = channel(direction, std::min(stage, peer_stage));
    double& clock = clocks_[static_cast<size_t>(rank)];
    if (messages.sent.size() >= kMessagesUnderWay) {
      const size_t previous = messages.sent.size() - kMessagesUnderWay;
      if (previous >= messages.num_matched()) return false;
      clock = std::max(clock, arrival(messages, previous));
    }
    messages.sent.push_back({a.micro_batch, clock});
    match(messages, direction, peer_stage, messages.sent.size() - 1);
    return true;
  }

  void receive(int rank, Direction direction, int stage, int peer_stage, const Action& a) {
    check_peer(rank, a, peer_stage);
    Channel& messages = channel(direction, std::min(stage, peer_stage));
    messages.received.push_back({a.micro_batch, clocks_[static_cast<size_t>(rank)]});
    match(messages, direction, stage, messages.received.size() - 1);
  }

  double arrival(const Channel& messages, size_t number) const {
    return std::max(messages.sent[number].time, messages.received[number].time) + options_.send_latency;
  }

  void match(const Channel& messages, Direction direction, int receiver, size_t number) {
    if (number >= messages.num_matched()) return;
    const Channel::Message &sent = messages.sent[number], &received = messages.received[number];
    const StagePlace place = placement_.place_of(receiver);
    require(sent.micro_batch == received.micro_batch,
            "[simulate] rank {} receives micro-batch {} on chunk {} as {} number {} of that border, but micro-batch {} "
            "is sent: both sides must have the same order.",
            place.rank, received.micro_batch, place.chunk, direction == kForward ? "forward" : "backward", number,
            sent.micro_batch);
    arrived_[direction].at(receiver, sent.micro_batch) = arrival(messages, number);
  }

  void refuse_deadlock() const {
    std::string text;
    for (int rank = 0; rank < placement_.num_ranks(); ++rank)
      if (!is_done(rank)) text += fmt::format("\n  rank {} waits: {}", rank, reason_of(rank));
    require(text.empty(), "[simulate] the ranks wait for each other forever:{}", text);
  }

  std::string reason_of(int rank) const {
    const Action& a = next_action(rank);
    const bool is_forward = a.kind == ActionKind::kF || a.kind == ActionKind::kSendForward;
    const int stage = placement_.stage_of({.rank = rank, .chunk = a.chunk});
    if (!is_compute(a.kind)) {
      const StagePlace peer = placement_.place_of(is_forward ? stage + 1 : stage - 1);
      return fmt::format("{} until rank {} receives the send before it, on chunk {}", describe(a), peer.rank,
                         peer.chunk);
    }
    const StagePlace producer = placement_.place_of(is_forward ? stage - 1 : stage + 1);
    return fmt::format("{} needs the {} of chunk {} of rank {}", describe(a), is_forward ? "F" : "B", producer.chunk,
                       producer.rank);
  }

  void refuse_gaps() {
    for (const Direction direction : {kForward, kBackward})
      for (size_t border = 0; border < channels_[direction].size(); ++border) {
        const Channel& messages = channels_[direction][border];
        require(messages.sent.size() == messages.received.size(),
                "[simulate] {} messages are sent {} over the border behind stage {}, but {} are received.",
                messages.sent.size(), direction == kForward ? "forward" : "backward", border, messages.received.size());
      }
    for (int stage = 0; stage < placement_.num_stages(); ++stage)
      for (int m = 0; m < num_micro_batches_; ++m) {
        const StagePlace place = placement_.place_of(stage);
        const auto missing = [&](Times& times, const char* what) {
          require(times.has(stage, m), "[simulate] rank {} has no {} of micro-batch {}, chunk {}.", place.rank, what, m,
                  place.chunk);
        };
        missing(forward_done_, "F");
        if (!has_backward_) continue;
        missing(backward_done_, "B");
        missing(weight_done_, "W");
      }
  }

  const std::vector<Schedule>& schedules_;
  const StagePlacement& placement_;
  const SimulationOptions& options_;
  const int num_micro_batches_;
  bool has_backward_ = false;
  Times forward_done_, backward_done_, weight_done_;
  std::array<Times, 2> arrived_;                  // by direction, at the receiving stage
  std::array<std::vector<Channel>, 2> channels_;  // by direction and border
  std::vector<size_t> positions_;                 // by rank, as the rest
  std::vector<double> clocks_, live_;
  Simulation result_;
};

}  // namespace

double Simulation::bubble_fraction() const {
  if (makespan <= 0) return 0;
  double busy = 0;
  for (const RankTimeline& rank : ranks) busy += rank.busy;
  return 1 - busy / (makespan * static_cast<double>(ranks.size()));
}

Simulation simulate(const std::vector<Schedule>& schedules, const StagePlacement& placement,
                    const SimulationOptions& options) {
  return Simulator(schedules, placement, options).run();
}

}  // namespace megatron
