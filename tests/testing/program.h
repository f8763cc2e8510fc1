// A program as a process of its own, which a test reads from and acts upon while it runs.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <stdexcept>
#include <string>
#include <utility>

#include "tests/testing/words.h"

namespace megatron::testing {

/// Ends with its object, if it still runs then.
class Program {
 public:
  /// @param words of which the first is the program's path
  explicit Program(Words words) {
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) throw std::runtime_error("no pipe");
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(ends[1], STDOUT_FILENO);
      ::dup2(ends[1], STDERR_FILENO);
      ::close(ends[0]);
      ::close(ends[1]);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    ::close(ends[1]);
    output_ = ends[0];
  }
  ~Program() {
    if (process_ > 0) {
      ::kill(process_, SIGKILL);
      ::waitpid(process_, nullptr, 0);
    }
    ::close(output_);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t process() const { return process_; }
  /// The text that has been read from both streams.
  const std::string& output() const { return text_; }

  /// Reads on until the output holds `cue`. @return false if it has ended without
  bool read_until(const std::string& cue) {
    while (text_.find(cue) == std::string::npos)
      if (!read_some()) return false;
    return true;
  }
  void read_to_the_end() {
    while (read_some()) {
    }
  }

  /// Reads to the end, and waits for it. @return of waitpid
  int wait_status() {
    read_to_the_end();
    int status = 0;
    ::waitpid(std::exchange(process_, 0), &status, 0);
    return status;
  }

 private:
  bool read_some() {
    std::array<char, 4096> buffer{};
    const ssize_t count = ::read(output_, buffer.data(), buffer.size());
    if (count > 0) text_.append(buffer.data(), static_cast<size_t>(count));
    return count > 0;
  }

  pid_t process_ = 0;
  int output_ = -1;
  std::string text_;
};

}  // namespace megatron::testing
