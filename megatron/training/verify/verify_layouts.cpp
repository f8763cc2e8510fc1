#include "megatron/training/verify/verify_layouts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <mutex>
#include <tuple>

#include "megatron/autograd/shard_elements.h"
#include "megatron/training/config/layouts.h"
#include "megatron/training/family_batches.h"

namespace megatron {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The elements of each tensor that any rank has compared.
using Coverage = std::map<std::string, std::vector<bool>>;

struct Collected {
  std::mutex mutex;
  std::vector<LayoutDifference> differences;
  Coverage weights, gradients;
};

double distance(double actual, double expected) {
  const double error = std::abs(actual - expected);
  return std::isnan(error) ? kInfinity : error;
}

/// One rank's comparison of its run with the reference.
class RankComparison {
 public:
  RankComparison(const ReferenceRun& reference, Trainer& trainer)
      : reference_(reference), trainer_(trainer), batches_(trainer.config().family) {}

  void run(const VerifyHooks& hooks) {
    const ProcessGroup& replicas = trainer_.groups().dp;
    for (int64_t step = 0; step < reference_.num_steps(); ++step) {
      if (hooks.before_step) hooks.before_step(trainer_, step);
      compare_weights(step);
      GlobalBatch own;
      for (size_t i = static_cast<size_t>(replicas.rank()); i < reference_.batch(step).size();
           i += static_cast<size_t>(replicas.size()))
        own.push_back(reference_.batch(step)[i]);
      const TrainStepResult result = trainer_.train_step(batches_.of(own));
      const ReferenceStep& expected = reference_.step(step);
      compare_number(Compared::kLoss, step, result.loss.mean(), expected.loss);
      compare_gradients(step);
      compare_number(Compared::kGradNorm, step, result.optimizer.grad_norm, expected.grad_norm);
    }
    compare_weights(reference_.num_steps());
  }

  /// When the run is over.
  void give(Collected& all) const {
    const std::lock_guard lock(all.mutex);
    all.differences.insert(all.differences.end(), differences_.begin(), differences_.end());
    for (const auto& [from, to] : {std::pair(&weights_, &all.weights), std::pair(&gradients_, &all.gradients)})
      for (const auto& [name, covered] : *from) {
        std::vector<bool>& total = (*to)[name];
        total.resize(std::max(total.size(), covered.size()));
        for (size_t i = 0; i < covered.size(); ++i) total[i] = total[i] || covered[i];
      }
  }

 private:
  void add(Compared compared, const std::string& tensor, int64_t step, double error, double bound) {
    differences_.push_back({.compared = compared,
                            .tensor = tensor,
                            .rank = trainer_.groups().world.rank(),
                            .step = step,
                            .error = error,
                            .bound = bound});
  }

  void compare_number(Compared compared, int64_t step, double actual, const ReferenceNumber& expected) {
    const double size = expected.value == 0 ? 1 : std::abs(expected.value);
    add(compared, "", step, distance(actual, expected.value) / size, reference_.bound(size, expected.deviation) / size);
  }

  /// Elements [begin, end) of the parameter's shard, which `tensor` holds whole.
  /// @param bound  absolute
  void compare_range(Compared compared, int64_t step, const FlatRange& range, const Tensor& tensor,
                     const ReferenceTensor& expected, std::vector<bool>& covered, double bound) {
    covered.resize(expected.values.size());
    double worst = 0;
    const std::vector<double> values = elements_of(trainer_.device(), tensor);
    for_each_shard_element(*range.parameter, [&](int64_t whole, int64_t local) {
      if (local < range.begin || local >= range.end || whole >= expected.num_elements) return;
      const auto i = static_cast<size_t>(whole);
      covered[i] = true;
      worst = std::max(worst, distance(values[static_cast<size_t>(local)], expected.values[i]));
    });
    const double largest = std::max(expected.largest, bound), size = largest == 0 ? 1 : largest;
    add(compared, range.parameter->name(), step, worst / size, bound / size);
  }

  void compare_weights(int64_t step) {
    const ReferenceStep& expected = reference_.step(step);
    for (Parameter* parameter : trainer_.model().parameters()) {
      const Tensor& value = std::as_const(*parameter).value();
      const ReferenceTensor& whole = expected.weights.at(parameter->name());
      compare_range(Compared::kWeight, step, {parameter, 0, value.num_elements()}, value, whole,
                    weights_[parameter->name()], reference_.bound(whole.largest, whole.deviation));
    }
  }

  void compare_gradients(int64_t step) {
    const ReferenceStep& expected = reference_.step(step);
    for (const OptimizerState& state : trainer_.optimizer().states()) {
      const ReferenceTensor& whole = expected.gradients.at(state.parameter->name());
      compare_range(Compared::kGradient, step, state, state.parameter->main_grad(), whole,
                    gradients_[state.parameter->name()], reference_.bound(whole.largest, whole.deviation));
    }
  }

  const ReferenceRun& reference_;
  Trainer& trainer_;
  FamilyBatches batches_;
  std::vector<LayoutDifference> differences_;
  Coverage weights_, gradients_;
};

/// Adds the tensors that no rank has.
void add_missing(const ReferenceRun& reference, Collected& all) {
  const ReferenceStep& first = reference.step(0);
  const auto check = [&](Compared compared, const std::map<std::string, ReferenceTensor>& expected, Coverage& covered) {
    for (const auto& [name, tensor] : expected) {
      std::vector<bool>& elements = covered[name];
      elements.resize(tensor.values.size());
      if (std::ranges::find(elements, false) != elements.end())
        all.differences.push_back({.compared = compared, .tensor = name, .step = 0, .error = kInfinity, .bound = 0});
    }
  };
  check(Compared::kWeight, first.weights, all.weights);
  check(Compared::kGradient, first.gradients, all.gradients);
}

LayoutReport report_of(const ReferenceRun& reference, std::vector<LayoutDifference> all) {
  LayoutReport report;
  report.largest = *std::ranges::max_element(all, {}, &LayoutDifference::severity);
  std::erase_if(all, [](const LayoutDifference& difference) { return !difference.departs(); });
  if (all.empty()) return report;
  const int64_t first_step = std::ranges::min_element(all, {}, &LayoutDifference::step)->step;
  std::erase_if(all, [&](const LayoutDifference& difference) { return difference.step != first_step; });
  std::map<std::string, int> places;
  for (const std::string& name : reference.names()) places.emplace(name, static_cast<int>(places.size()));
  const auto order = [&](const LayoutDifference& d) {
    const bool is_gradient = d.compared == Compared::kGradient;
    return std::tuple(d.compared, is_gradient ? -places[d.tensor] : 0, -d.severity(), d.tensor, d.rank);
  };
  std::ranges::sort(all, {}, order);
  for (const LayoutDifference& difference : all) {
    const bool is_known = std::ranges::any_of(report.departures, [&](const LayoutDifference& known) {
      return known.compared == difference.compared && known.tensor == difference.tensor;
    });
    if (!is_known) report.departures.push_back(difference);
  }
  return report;
}

}  // namespace

double LayoutDifference::severity() const {
  if (error == 0) return 0;
  return bound > 0 ? error / bound : kInfinity;
}

LayoutReport verify_layout(const ReferenceRun& reference, const PretrainConfig& config, const VerifyHooks& hooks) {
  const ParallelLayout layout = parallel_layout_of(config);
  const int num_ranks = layout.sizes().world_size;
  Collected all;
  ThreadWorld ranks(num_ranks, config.parallel.timeout());
  try {
    const auto run_rank = [&](World& world) {
      Trainer trainer(
          config, {.num_threads = threads_per_rank(num_ranks), .groups = ProcessGroupCollection::make(world, layout)});
      RankComparison comparison(reference, trainer);
      comparison.run(hooks);
      comparison.give(all);
    };
    run_rank_threads(ranks, run_rank, hooks.ranks);
  } catch (const RankFailure& failure) {
    return {.largest = {}, .departures = {}, .failure = failure.what()};
  }
  add_missing(reference, all);
  return report_of(reference, std::move(all.differences));
}

}  // namespace megatron
