// megatron merge_datasets: joins datasets into one.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace megatron {

/// Writes what Megatron's tools/merge_datasets.py writes: the datasets of a folder in the order of their names.
/// @param args  the arguments after "megatron merge_datasets".
/// @param out   the report, or the help. @param err  notes and errors.
/// @return exit status, see ExitCode.
int merge_datasets_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err);

}  // namespace megatron
