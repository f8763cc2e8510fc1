#include "commands/file_signals.h"

#include <unistd.h>

#include <array>
#include <csignal>
#include <string_view>

#include "commands/exit_code.h"
#include "megatron/base/mapped_ranges.h"

namespace megatron {
namespace {

/// A text whose parts may be appended in a signal handler.
class Message {
 public:
  void append(std::string_view part) { length_ += part.copy(text_.data() + length_, text_.size() - length_); }
  void write_to(int descriptor) const {
    [[maybe_unused]] const ssize_t written = ::write(descriptor, text_.data(), length_);
  }

 private:
  std::array<char, 1024> text_{};
  size_t length_ = 0;
};

// Ends the process, so it is safe even if the thread's stack pointer is not in its stack (see SignalWatch).
void end_on_bus_error(int, siginfo_t* info, void*) {
  const char* path = file_mapped_at(info->si_addr);
  if (path == nullptr) {
    std::signal(SIGBUS, SIG_DFL);  // the instruction runs again, and ends the process as without this handler
    return;
  }
  Message message;
  message.append("megatron: ");
  message.append(path);
  message.append(
      " was truncated while it was read, or its disk failed. Restore the file and start the run again; it continues "
      "from its last checkpoint. --no-mmap-bin-files reads .bin files without a map.\n");
  message.write_to(STDERR_FILENO);
  ::_exit(static_cast<int>(ExitCode::kData));
}

}  // namespace

void handle_file_signals() {
  struct sigaction action {};
  action.sa_sigaction = end_on_bus_error;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace megatron
