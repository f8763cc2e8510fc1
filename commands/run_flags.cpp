#include "commands/run_flags.h"

#include <vector>

#include "megatron/training/config/fields.h"

namespace megatron {
namespace {

std::set<std::string> flags_with(bool Field::*attribute) {
  PretrainConfig defaults;
  std::set<std::string> flags;
  describe(defaults).for_each([&](const Field& field) {
    const std::vector<std::string> spellings = field.spellings();
    if (field.*attribute) flags.insert(spellings.begin(), spellings.end());
  });
  return flags;
}

}  // namespace

std::set<std::string> run_flags() { return flags_with(&Field::of_whole_runs); }

std::set<std::string> num_ranks_flags() { return flags_with(&Field::sets_num_ranks); }

}  // namespace megatron
