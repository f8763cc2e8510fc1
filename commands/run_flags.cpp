#include "commands/run_flags.h"

#include "megatron/training/config/fields.h"
#include "megatron/training/config/pretrain_config.h"

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

std::string flag_in(const std::string& argument) { return argument.substr(0, argument.find('=')); }

SplitArguments split_arguments(const FieldTable& own, const std::vector<std::string>& args) {
  SplitArguments arguments;
  bool is_own = false;
  for (const std::string& argument : args) {
    if (argument.starts_with("--")) is_own = own.find_flag(flag_in(argument)) != nullptr;
    (is_own ? arguments.own : arguments.model).push_back(argument);
  }
  return arguments;
}

std::set<std::string> run_flags() { return flags_with(&Field::of_whole_runs); }

std::set<std::string> num_ranks_flags() { return flags_with(&Field::sets_num_ranks); }

std::string flags_of_training_about(std::string_view word) {
  if (word.empty()) return "";
  return fmt::format("'megatron pretrain_gpt --help {}' lists the flags of training that mention it.\n", word);
}

std::string help_of_training_flag(const std::string& flag) { return help_text({"--help=" + flag}); }

}  // namespace megatron
