// Checks that layouts of ranks train as one rank does: step by step, tensor by tensor, within computed bounds of
// rounding.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "megatron/comm/threads/rank_threads.h"
#include "megatron/training/verify/reference_run.h"

namespace megatron {

/// Things that are compared, in the order in which a step has them.
enum class Compared { kWeight, kLoss, kGradient, kGradNorm };

/// How far something on a rank is from what one rank has.
struct LayoutDifference {
  Compared compared = Compared::kLoss;
  std::string tensor;  // name of the parameter; empty for loss and norm
  int rank = 0;
  int64_t step = 0;  // from 0; weights are those before the step, or after the last one
  /// The error of the worst element, in units of the tensor's largest one, or of the bound if all is rounding. An
  /// element that no rank holds is infinitely wrong.
  double error = 0, bound = 0;

  bool departs() const { return !(error <= bound); }
  /// In units of the bound.
  double severity() const;
};

/// The result of a layout.
struct LayoutReport {
  LayoutDifference largest;  // in units of its bound
  /// The departures of the first step that has any, one for each tensor, on the rank that is farthest off. The first is
  /// where to look: weights, worst first, as a step begins with them; then the loss; then gradients in the order of
  /// backward, which carries an error from layer to layer downward; then their norm.
  std::vector<LayoutDifference> departures;
  std::string failure;  // what a rank threw; then nothing was compared

  bool is_same() const { return departures.empty() && failure.empty(); }
};

/// Functions that are called beside the comparison.
struct VerifyHooks {
  std::function<void(Trainer&, int64_t step)> before_step;  // for tests; on every rank, before weights are compared
  RankThreadHooks ranks;
};

/// Trains the layout's ranks as threads from initial weights on the batches of `reference`.
/// @param config  the same model and batch as the reference's, resolved, for its own number of ranks.
/// Every rank compares what it holds (ShardSpec), gradients where its optimizer owns them (FlatRange). Bounds are
/// those of ReferenceRun::bound().
LayoutReport verify_layout(const ReferenceRun& reference, const PretrainConfig& config, const VerifyHooks& hooks = {});

}  // namespace megatron
