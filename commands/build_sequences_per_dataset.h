// megatron build_sequences_per_dataset: counts of sequences of many data sets in one file.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace megatron {

/// Writes the file of Megatron's --per-dataset-sequences-path; --help describes the flags.
/// @param args  the arguments after "megatron build_sequences_per_dataset".
/// @return exit status, see exit_code.h.
int build_sequences_per_dataset_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err);

}  // namespace megatron
