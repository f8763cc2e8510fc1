// Megatron's flags that this version rejects, each with the reason: the lines of unsupported_flags.txt.
#pragma once

#include <string_view>
#include <vector>

#include "megatron/base/flag_parser.h"

namespace megatron {

struct UnsupportedFlag {
  std::string_view flag;
  std::string_view spelling_of;    ///< Megatron's flag, where this is another spelling of it; empty: this is Megatron's
  bool changes_the_model = false;  ///< a model that was stored with it cannot be built
};

/// Flags that share a reason.
struct UnsupportedFlags {
  bool is_not_yet = true;   ///< false: `reason` says what to give instead
  std::string_view reason;  ///< the feature that they belong to, or what to give instead
  std::vector<UnsupportedFlag> flags;
};

/// unsupported_flags.txt, which CMake makes part of the program.
std::string_view unsupported_flags_text();

/// Reads a text of that form. The result refers to the text. @throw InternalError with the line that has another
/// form
std::vector<UnsupportedFlags> parse_unsupported_flags(std::string_view text);

/// Every flag of Megatron's parser that describe() does not have.
std::vector<UnsupportedFlags> unsupported_flags();

/// The same with the text of the error for each.
RefusedFlags refused_flags();

/// Those that contain `word`, or whose reason does; an empty word: all. For --help: each reason with its flags.
std::string unsupported_flags_help(std::string_view word);

/// The text of the last section of docs/pretrain_gpt_flags.md.
std::string unsupported_flags_markdown();

}  // namespace megatron
