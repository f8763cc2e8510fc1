#include "commands/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <iostream>

namespace megatron {

ProgressBarOptions bar_options(const std::ostream& out, bool has_launcher) {
  ProgressBarOptions options;
  winsize size{};
  options.is_terminal =
      !has_launcher && &out == &std::cout && isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0;
  if (options.is_terminal && size.ws_col > 0) options.columns = size.ws_col;
  options.line_interval = std::chrono::hours(24);
  return options;
}

}  // namespace megatron
