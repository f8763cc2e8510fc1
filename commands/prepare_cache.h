// megatron prepare_cache: builds the index caches of a training run beforehand.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace megatron {

/// Does what Megatron's tools/prepare_cache.py does: takes the flags of training, and writes the shuffles of its data
/// sets to
/// --data-cache-path, where the run on any number of ranks finds them.
/// @param args  the arguments after "megatron prepare_cache".
/// @param out   the report, or the help. @param err  warnings and errors.
/// @return exit status, see ExitCode.
int prepare_cache_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err);

}  // namespace megatron
