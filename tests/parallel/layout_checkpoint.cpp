#include "tests/parallel/layout_checkpoint.h"

#include <gtest/gtest.h>

#include <map>

#include "megatron/training/checkpointer.h"
#include "tests/parallel/layout_matrix.h"
#include "tests/parallel/layout_run.h"
#include "tests/training/small_trainer.h"

namespace megatron::testing {

std::string saving(const ScratchDirectory& directory) { return " --save " + directory.path() + " --save-interval 1"; }
std::string loading(const ScratchDirectory& directory) { return " --load " + directory.path(); }

std::vector<double> continue_to(const std::string& words, const Layout& layout, int64_t iteration) {
  std::vector<double> losses;
  run_layout(words + " " + layout.words, layout.num_ranks, [&](Trainer& trainer) {
    PosixFileSystem files;
    Checkpointer checkpointer(files, trainer.config(), [](const std::string&) {});
    EXPECT_EQ(checkpointer.load(trainer), trainer.config().checkpoint.load.has_value());
    const std::vector<double> own = train(trainer, trainer.progress().iteration, iteration);
    if (trainer.config().checkpoint.save) checkpointer.save(trainer);
    if (trainer.groups().world.rank() == 0) losses = own;
  });
  return losses;
}

State state_of(const std::string& words) {
  Trainer trainer(small_config(words), {});
  PosixFileSystem files;
  Checkpointer checkpointer(files, trainer.config(), [](const std::string&) {});
  EXPECT_TRUE(checkpointer.load(trainer));
  return {.weights = weights_of(trainer),
          .optimizer = optimizer_state_of(trainer),
          .iteration = trainer.progress().iteration,
          .consumed_samples = trainer.progress().consumed_train_samples,
          .num_steps = trainer.optimizer().num_steps(),
          .schedule = trainer.scheduler().num_steps()};
}

void expect_reshards(uint64_t seed, int num_pairs) {
  std::map<std::string, std::vector<LayoutCase>> by_model;
  for (const LayoutCase& layout : all_layouts()) by_model[layout.model()].push_back(layout);
  std::map<std::string, std::vector<double>> one_rank;
  const RandomKey key = RandomKey::from_seed(seed);
  for (int pair = 0; pair < num_pairs; ++pair) {
    int64_t draw = 0;
    const auto below = [&](size_t count) {
      return static_cast<size_t>(uniform(key.at(pair), draw++) * static_cast<double>(count));
    };
    const auto model = std::next(by_model.begin(), static_cast<std::ptrdiff_t>(below(by_model.size())));
    const LayoutCase &from = model->second[below(model->second.size())],
                     &to = model->second[below(model->second.size())];
    SCOPED_TRACE(from.layout() + "to " + to.layout());
    const std::string& words = model->first;
    std::vector<double>& losses = one_rank[words];
    if (losses.empty()) losses = continue_to(words, {}, 2);
    const ScratchDirectory first, second;
    continue_to(words + saving(first), {from.layout(), from.num_ranks()}, 1);
    continue_to(words + loading(first) + saving(second), {to.layout(), to.num_ranks()}, 1);
    EXPECT_EQ(state_of(words + loading(second)), state_of(words + loading(first)));
    const std::vector<double> next = continue_to(words + loading(first), {to.layout(), to.num_ranks()}, 2);
    EXPECT_NEAR(next.at(0), losses.at(1), 1e-11);
  }
}

}  // namespace megatron::testing
