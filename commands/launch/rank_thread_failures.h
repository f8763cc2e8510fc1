// What commands do about ranks that fail or hang where all are threads of this process.
#pragma once

#include <iosfwd>
#include <string_view>

#include "megatron/comm/threads/rank_threads.h"

namespace megatron {

/// Hooks that print to `err` as run_command() does: a failure at once, and then, if ranks hang, which of them do. Then
/// the process ends, with no further clean-up, with the exit status of the failure: 7 if ranks did not come together.
RankThreadHooks report_and_end(std::string_view command, std::ostream& err);

}  // namespace megatron
