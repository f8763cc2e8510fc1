// Flags of pretrain_gpt in other commands: those that they reject or omit, and the help on the others.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

class FieldTable;

/// The flag in "--flag=value" or "--flag".
std::string flag_in(const std::string& argument);

/// The arguments of a command that takes flags of pretrain_gpt beside its own. A flag's values follow it.
struct SplitArguments {
  std::vector<std::string> own, model;
};
/// @param own  the command's own flags; all others are those of pretrain_gpt
SplitArguments split_arguments(const FieldTable& own, const std::vector<std::string>& args);

/// Flags of logs, checkpoints, validation and the end of a run, which only a whole run uses.
std::set<std::string> run_flags();

/// Flags that set the number of ranks to start here: --nproc-per-node.
std::set<std::string> num_ranks_flags();

/// A line for the help of a command that takes flags of pretrain_gpt beside its own: where those about a word are
/// listed. Empty for an empty word.
std::string flags_of_training_about(std::string_view word);
/// The text that 'pretrain_gpt --help=FLAG' prints.
std::string help_of_training_flag(const std::string& flag);

}  // namespace megatron
