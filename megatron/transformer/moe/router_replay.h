// Records the experts that a router chooses, and makes it choose them again. Megatron Core:
// core/transformer/moe/router_replay.py. Reinforcement learning trains with the routes of the generation that it
// rewards, so that both are computed by the same experts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "megatron/autograd/tape.h"

namespace megatron {

/// The experts of the tokens of one forward pass of one layer: [tokens, topk], ascending for each token.
struct RecordedRoutes {
  int64_t topk = 0;
  std::vector<int32_t> experts;
  bool operator==(const RecordedRoutes&) const = default;
};

/// Belongs to one router, and so to one rank and its tokens. Off at first. Both ways copy between host and device, so
/// that they are not for CUDA graphs. Not thread-safe.
class RouterReplay {
 public:
  /// From now on, keeps the routes of each forward pass. A pass that recompute runs again adds none.
  void record();
  /// The next forward passes take these routes, in this order, in place of their own choice. Probabilities are computed
  /// from the logits of the pass. Balance losses and the expert bias go on counting: balance losses what the router
  /// would have chosen, the expert bias where the tokens went.
  /// @throw ConfigError if the number of entries is no multiple of topk.
  void replay(std::vector<RecordedRoutes> routes);
  /// Routers choose by themselves again. What was recorded stays until record().
  void stop();
  /// Begins a step, or repeats one: while recording, forgets what was recorded; replays from the first routes on.
  void begin_step();

  const std::vector<RecordedRoutes>& recorded() const { return recorded_; }

  // For the router.
  /// Values of [t, e] to choose by: 1 for the experts of the next routes, else 0. Undefined if nothing is replayed.
  /// @throw ShapeError if the routes are those of other tokens, of another topk or of experts that do not exist, or
  /// if there are no more.
  Tensor next_selection(const Context& ctx, const Tensor& logits, int64_t topk);
  /// @param map [t, e] uint8: topk experts of each token.
  void add(const Context& ctx, const Tensor& map, int64_t topk);

 private:
  enum class Mode { kOff, kRecord, kReplay };
  Mode mode_ = Mode::kOff;
  std::vector<RecordedRoutes> recorded_, replayed_;
  size_t next_ = 0;  // of replayed_
};

}  // namespace megatron
