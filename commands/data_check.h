// megatron data check: finds damaged files and tokens outside of the vocabulary.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace megatron {

/// Reads all of each dataset or file of conversations, and prints a line for each; or the help.
/// Shows the progress as a bar on a terminal, elsewhere as lines on `err`, every 10 seconds and at the end of each
/// file.
/// @param args  the arguments after "megatron data check": prefixes, then flags.
/// @throw ConfigError for wrong flags; DataError with one text for each dataset at fault, once all are read.
void data_check(const std::vector<std::string>& args, std::ostream& out, std::ostream& err);

}  // namespace megatron
