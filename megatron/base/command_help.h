// Prints the help of a command: --help, --help WORD and --help=FLAG.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/base/field.h"

namespace megatron {

struct CommandHelp {
  std::string command;       ///< "megatron plan"
  std::string introduction;  ///< usage and examples
  const FieldTable& table;   ///< bound to an object that holds the defaults
  /// Follows what the field itself knows. May be empty.
  std::function<std::string(const Field&)> more_about_field = {};
  /// Follows the flags of the table that mention the word; for an empty word, all flags. May be empty.
  std::function<std::string(std::string_view word)> more_about_word = {};
  /// About a flag that the table lacks; an empty text if nothing is known of it. May be empty.
  std::function<std::string(const std::string& flag)> about_other_flag = {};
};

/// Says whether -h, --help or --help=FLAG is among the words; the command prints help_text() then.
bool asks_for_help(const std::vector<std::string>& args);

/// The help that the arguments ask for. "--help": the introduction and all flags in their groups; "--help WORD": the
/// flags that mention WORD; "--help=FLAG", or "--help FLAG": everything about one flag.
std::string help_text(const CommandHelp& help, const std::vector<std::string>& args);

}  // namespace megatron
