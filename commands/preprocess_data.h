// megatron preprocess_data: text to .bin and .idx.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace megatron {

/// Tokenizes JSON Lines or plain text into the files that training reads; --help describes the flags.
/// The files equal those of Megatron's tools/preprocess_data.py, byte for byte. They get their names when all of them
/// are complete.
/// @param args  the arguments after "megatron preprocess_data".
/// @param out   what was written, or the help. @param err  progress and errors.
/// @return exit status, see exit_code.h.
int preprocess_data_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err);

}  // namespace megatron
