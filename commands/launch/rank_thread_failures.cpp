#include "commands/launch/rank_thread_failures.h"

#include <unistd.h>

#include <ostream>
#include <string>

#include "commands/exit_code.h"
#include "megatron/comm/operation.h"

namespace megatron {

RankThreadHooks report_and_end(std::string_view command, std::ostream& err) {
  const auto report = [command = std::string(command), &err](std::string_view text) {
    print_error(command, text, err);
  };
  const auto end = [report](const RankFailure& failure, const std::vector<int>& ranks) {
    if (!failure.is_reported) report(failure.what());
    report(fmt::format("{} still run{} {} s after this failure and cannot be stopped, so the process ends here.",
                       describe_ranks(ranks), ranks.size() == 1 ? "s" : "", kTimeToEnd.count() / 1000));
    ::_exit(static_cast<int>(exit_code_of(failure)));  // not exit(): destructors would wait for the threads that hang
  };
  return {.on_failure = [report](const RankFailure& failure) { report(failure.what()); }, .on_hang = end};
}

}  // namespace megatron
