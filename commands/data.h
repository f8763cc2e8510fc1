// megatron data: inspects and checks datasets.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace megatron {

/// `data inspect` prints documents, lengths, types and sizes of a dataset; with --seq-length the sequences of each
/// split; with --sample one sample as training reads it, and its text if a tokenizer is given. `data check` looks for
/// tokens outside of the vocabulary. Neither writes files.
/// @param args  the arguments after "megatron data".
/// @param out   the report, or the help. @param err  warnings and errors.
/// @return exit status, see ExitCode.
int data_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err);

}  // namespace megatron
