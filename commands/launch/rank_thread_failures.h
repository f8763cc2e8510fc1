// Failures and hangs of ranks that are threads of this process.
#pragma once

#include <iosfwd>
#include <string_view>

#include "megatron/comm/threads/rank_threads.h"

namespace megatron {

/// Hooks that print to `err` like run_command(): a failure at once, and then the ranks that hang, if any. Then
/// the process ends without further clean-up, with the exit status of the failure: 7 if ranks waited in vain.
RankThreadHooks report_and_end(std::string_view command, std::ostream& err);

}  // namespace megatron
