#include "tests/parallel/layout_checkpoint.h"

#include <fmt/core.h>

#include <cmath>
#include <map>

#include "megatron/training/checkpoint/checkpointer.h"
#include "tests/parallel/layout_run.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {

std::string saving(const ScratchDirectory& directory) { return " --save " + directory.path() + " --save-interval 1"; }
std::string loading(const ScratchDirectory& directory) { return " --load " + directory.path(); }

std::vector<double> continue_to(const std::string& words, const Layout& layout, int64_t iteration) {
  std::vector<double> losses;
  run_layout(words + " " + layout.words, layout.num_ranks, [&](Trainer& trainer) {
    PosixFileSystem files;
    Checkpointer checkpointer(files, trainer.config(), {});
    require<Error>(checkpointer.load(trainer) == trainer.config().checkpoint.load.has_value(), "nothing was loaded");
    const std::vector<double> own = train(trainer, trainer.progress().iteration, iteration);
    if (trainer.config().checkpoint.save) checkpointer.save(trainer);
    checkpointer.finish_save(trainer.groups().world, Wait::kYes);
    if (trainer.groups().world.rank() == 0) losses = own;
  });
  return losses;
}

State state_of(const std::string& words) {
  Trainer trainer(small_config(words), {});
  PosixFileSystem files;
  Checkpointer checkpointer(files, trainer.config(), {});
  require<Error>(checkpointer.load(trainer), "nothing was loaded");
  return {.weights = weights_of(trainer),
          .optimizer = optimizer_state_of(trainer),
          .iteration = trainer.progress().iteration,
          .consumed_samples = trainer.progress().consumed_train_samples,
          .num_steps = trainer.optimizer().num_steps(),
          .schedule = trainer.scheduler().num_steps()};
}

std::vector<LayoutPair> random_pairs(uint64_t seed, int num_pairs) {
  const std::vector<LayoutCase> all = all_layouts(whole_matrix());
  std::map<std::string, std::vector<LayoutCase>> by_model;
  for (const LayoutCase& layout : all) by_model[layout.model()].push_back(layout);
  const RandomKey key = RandomKey::from_seed(seed);
  std::vector<LayoutPair> pairs;
  for (int pair = 0; pair < num_pairs; ++pair) {
    const auto one_of = [&](const std::vector<LayoutCase>& layouts, int64_t draw) {
      return layouts[static_cast<size_t>(uniform(key.at(pair), draw) * static_cast<double>(layouts.size()))];
    };
    const LayoutCase from = one_of(all, 0);
    pairs.push_back({.from = from, .to = one_of(by_model[from.model()], 1)});
  }
  return pairs;
}

CaseOutcome reshard(const LayoutPair& pair, OneRankCurves& one_rank) {
  const std::string words = pair.from.model();
  const Layout from{pair.from.layout(), pair.from.num_ranks()}, to{pair.to.layout(), pair.to.num_ranks()};
  const Curve& expected = one_rank.of(words);
  const ScratchDirectory first, second;
  continue_to(words + saving(first), from, 1);
  continue_to(words + loading(first) + saving(second), to, 1);
  if (state_of(words + loading(second)) != state_of(words + loading(first))) return {.failure = "another state"};
  const double loss = continue_to(words + loading(first), to, 2).at(0), error = std::abs(loss - expected.losses.at(1));
  if (error <= 1e-11) return {.loss_error = error};
  return {.loss_error = error, .failure = fmt::format("loss {:.17g}, not {:.17g}", loss, expected.losses.at(1))};
}

}  // namespace megatron::testing
