#include "commands/terminal.h"

#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <iostream>

namespace megatron {
namespace {

/// The pager's command; empty if there is none.
std::string pager() {
  if (const char* chosen = std::getenv("PAGER")) return chosen;
  return std::system("command -v less >/dev/null 2>&1") == 0 ? "less -FRX" : "";
}

/// @return whether the pager has run; it may end before it has read everything.
bool show_in_pager(const std::string& text, const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "w");
  if (pipe == nullptr) return false;
  const auto before = std::signal(SIGPIPE, SIG_IGN);
  std::fwrite(text.data(), 1, text.size(), pipe);
  const int status = ::pclose(pipe);
  std::signal(SIGPIPE, before);
  constexpr int kNotFound = 127;  // the shell's exit status
  return !(WIFEXITED(status) && WEXITSTATUS(status) == kNotFound);
}

}  // namespace

void show_text(const std::string& text, std::ostream& out) {
  const bool is_terminal = &out == &std::cout && isatty(STDOUT_FILENO) && isatty(STDIN_FILENO);
  const std::string command = is_terminal ? pager() : "";
  if (!command.empty() && show_in_pager(text, command)) return;
  out << text;
}

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
