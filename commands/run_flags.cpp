#include "commands/run_flags.h"

#include <array>
#include <string_view>
#include <vector>

#include "megatron/training/config/fields.h"

namespace megatron {

std::set<std::string> run_flags() {
  constexpr auto kOthers = std::to_array<std::string_view>(
      {"iterations_to_skip", "exit_interval", "exit_duration_in_mins", "exit_signal_handler", "exit_signal",
       "eval_iters", "eval_interval", "start_eval_at_iter", "eval_global_batch_size", "eval_micro_batch_size",
       "full_validation", "multiple_validation_sets", "validation_set_names", "skip_train"});
  PretrainConfig config;
  FieldTable all = describe(config), whole;
  describe_logging(whole, config);
  describe_profiling(whole, config);
  describe_faults(whole, config);
  describe_checkpoint(whole, config);
  std::set<std::string> flags;
  const auto add = [&](const Field& field) {
    flags.insert(field.flags.begin(), field.flags.end());
    flags.insert(field.off_flags.begin(), field.off_flags.end());
  };
  whole.for_each(add);
  for (const std::string_view name : kOthers) add(*all.find(name));
  return flags;
}

std::set<std::string> num_ranks_flags() {
  PretrainConfig config;
  FieldTable table = describe(config);
  std::set<std::string> flags;
  for (const std::string_view name : {"nproc_per_node", "nnodes"}) {
    const std::vector<std::string>& spellings = table.find(name)->flags;
    flags.insert(spellings.begin(), spellings.end());
  }
  return flags;
}

}  // namespace megatron
