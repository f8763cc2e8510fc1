#include "megatron/training/startup/evaluation_samples.h"

#include <algorithm>

#include "megatron/base/mistakes.h"
#include "megatron/base/word_list.h"
#include "megatron/datasets/samplers.h"
#include "megatron/training/iteration_plan.h"

namespace megatron {
namespace {

/// The flag that the data of a split come from, with its value.
std::string source_of(const DataConfig& data, std::string_view flag, const std::vector<std::string>& paths) {
  if (!paths.empty()) return fmt::format("{} {}", flag, joined(paths, " "));
  if (data.split) return fmt::format("--split {}", *data.split);
  return data.mock_data ? "--mock-data" : "--per-split-data-args-path";
}

std::string validation_set_name(const PretrainConfig& config, size_t set, size_t num_sets) {
  const std::vector<std::string>& names = config.validation.validation_set_names;
  const std::string source = source_of(config.data, "--valid-data-path", config.data.valid_data_path);
  if (num_sets == 1) return fmt::format("the validation set ({})", source);
  const std::string name = set < names.size() ? fmt::format(" '{}'", names[set]) : "";
  return fmt::format("validation set {} of {}{} ({})", set + 1, num_sets, name, source);
}

/// The samples that evaluations take from one set.
struct Demand {
  int64_t consumed = 0, num_evaluations = 0;
};

void check_cyclic(const PretrainConfig& config, const std::string& name, int64_t size, const Demand& demand,
                  Mistakes& mistakes) {
  try {
    CyclicSampler(size, demand.consumed,
                  {.micro_batch_size = config.validation.eval_micro_batch_size.value(),
                   .rank = 0,
                   .size = config.parallel.data_parallel_size},
                  config.data.data_sharding);
  } catch (const ConfigError& error) {
    mistakes.add({}, "{}: {}", name, error.what());
  }
}

void check(const PretrainConfig& config, const std::string& name, int64_t size, const Demand& demand,
           Mistakes& mistakes) {
  const ValidationConfig& validation = config.validation;
  if (validation.full_validation) {
    if (size == 0)
      mistakes.add({},
                   "{} has no sample: its data are shorter than --seq-length {} tokens. Give it more data, or leave it "
                   "out",
                   name, config.model.seq_length.value());
    return;
  }
  if (demand.num_evaluations == 0) return;
  if (config.data.dataloader_type == "cyclic") return check_cyclic(config, name, size, demand, mistakes);
  const int64_t batch = validation.eval_global_batch_size.value();
  const int64_t needed = demand.consumed + demand.num_evaluations * validation.eval_iters * batch;
  if (needed > size)
    mistakes.add({},
                 "{} has {} samples, and {} are needed: {} are consumed, and each of {} evaluations takes --eval-iters "
                 "{} batches of {}. A set is built for all evaluations of a run, as --eval-iters and --eval-interval "
                 "count them: go on with those that the run had, or take --dataloader-type cyclic, which begins again "
                 "at the end",
                 name, size, needed, demand.consumed, demand.num_evaluations, validation.eval_iters, batch);
}

}  // namespace

void require_evaluation_samples(const PretrainConfig& config, const GptDatasets& datasets,
                                const TrainingProgress& progress) {
  Mistakes mistakes;
  const int64_t num_evaluations = IterationPlan(config).num_evaluations_left(progress.iteration);
  if (num_evaluations == 0) return;
  const size_t num_sets = datasets.valid.size();
  for (size_t set = 0; set < num_sets; ++set)
    if (datasets.valid[set])
      check(config, validation_set_name(config, set, num_sets), datasets.valid[set]->size(),
            {progress.consumed_valid_samples, num_evaluations}, mistakes);
  if (datasets.test)
    check(config,
          fmt::format("the test set ({})", source_of(config.data, "--test-data-path", config.data.test_data_path)),
          datasets.test->size(), {0, 1}, mistakes);
  mistakes.throw_if_any("evaluation would fail");
}

}  // namespace megatron
