// megatron data: looks into data sets.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace megatron {

/// `data inspect` prints what a data set holds: documents, lengths, types and sizes; with --seq-length what each split
/// takes of it; with --sample one sample as training gets it, and its text if a tokenizer is given. Writes no files.
/// @param args  the words after "megatron data".
/// @param out   the report, or the help. @param err  warnings and errors.
/// @return exit status, see ExitCode.
int data_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err);

}  // namespace megatron
