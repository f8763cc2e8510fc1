#include "commands/launch/process_starter.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <map>
#include <optional>
#include <utility>

#include "commands/exit_code.h"
#include "megatron/base/error.h"
#include "megatron/comm/threads/rank_threads.h"

namespace megatron {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kCannotStart = 127;  // a shell's exit status

/// Without SIGINT: a terminal sends it to all processes itself.
constexpr std::array kPassedOn{SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

std::vector<char*> pointers_to(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

/// This process's environment, in which `variables` replace those of the same names.
std::vector<std::string> environment_with(const std::vector<std::string>& variables) {
  std::vector<std::string> all = variables;
  const auto name_of = [](std::string_view variable) { return variable.substr(0, variable.find('=') + 1); };
  for (char** variable = environ; *variable; ++variable)
    if (std::none_of(variables.begin(), variables.end(),
                     [&](const std::string& own) { return name_of(own) == name_of(*variable); }))
      all.emplace_back(*variable);
  return all;
}

/// The signals that the starter waits for, blocked as long as this lives, so that none is lost between two polls.
class WaitedSignals {
 public:
  WaitedSignals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGCHLD);
    for (int number : kPassedOn) sigaddset(&set_, number);
    pthread_sigmask(SIG_BLOCK, &set_, &before_);
  }
  ~WaitedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  WaitedSignals(const WaitedSignals&) = delete;
  WaitedSignals& operator=(const WaitedSignals&) = delete;

  const sigset_t& before() const { return before_; }
  /// Number of a signal, or 0 if none arrived within 0.1 s.
  int next() const {
    constexpr timespec kLook{0, 100'000'000};
    const int number = sigtimedwait(&set_, nullptr, &kLook);
    return number > 0 ? number : 0;
  }

 private:
  sigset_t set_{}, before_{};
};

/// A child reports through it why exec() failed; a successful exec() closes the pipe.
class ErrorPipe {
 public:
  ErrorPipe() { require<IoError>(pipe2(ends_.data(), O_CLOEXEC) == 0, "A pipe cannot be created: {}", text_of(errno)); }
  ~ErrorPipe() {
    for (int end : ends_)
      if (end >= 0) close(end);
  }
  ErrorPipe(const ErrorPipe&) = delete;
  ErrorPipe& operator=(const ErrorPipe&) = delete;

  void tell(int error) const { (void)!write(ends_[1], &error, sizeof error); }
  /// 0, or the child's error number.
  int hear() {
    close(std::exchange(ends_[1], -1));
    int error = 0;
    ssize_t size = 0;
    do size = ::read(ends_[0], &error, sizeof error);
    while (size < 0 && errno == EINTR);
    return size == sizeof error ? error : 0;
  }
  static const char* text_of(int error) { return std::strerror(error); }

 private:
  std::array<int, 2> ends_{-1, -1};
};

/// Between fork() and exec() it calls only functions that are safe in a signal handler: this process has threads.
pid_t start(std::vector<std::string> command, std::vector<std::string> variables, const sigset_t& mask) {
  const std::vector<char*> arguments = pointers_to(command), environment = pointers_to(variables);
  ErrorPipe pipe;
  const pid_t parent = getpid(), child = fork();
  require<IoError>(child >= 0, "A rank's process cannot be started: {}", ErrorPipe::text_of(errno));
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(kCannotStart);  // the parent ended before the line above
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    execve(arguments[0], arguments.data(), environment.data());
    pipe.tell(errno);
    _exit(kCannotStart);
  }
  const int error = pipe.hear();
  if (error != 0) waitpid(child, nullptr, 0);
  require<IoError>(error == 0, "A rank's process cannot be started: {} cannot be run: {}", command[0],
                   ErrorPipe::text_of(error));
  return child;
}

class Processes {
 public:
  Processes(std::string_view command, std::ostream& err) : command_(command), err_(err) {}
  ~Processes() {
    for (const auto& [id, rank] : running_) kill(id, SIGKILL);
    for (const auto& [id, rank] : running_) waitpid(id, nullptr, 0);
  }
  Processes(const Processes&) = delete;
  Processes& operator=(const Processes&) = delete;

  void add(pid_t id, int rank) { running_.emplace(id, rank); }
  bool all_have_ended() const { return running_.empty(); }
  int status() const { return status_; }
  void send(int signal) const {
    for (const auto& [id, rank] : running_) kill(id, signal);
  }
  /// Reaps processes that have ended, and kills those that run too long after a failure.
  void look() {
    for (auto process = running_.begin(); process != running_.end();) {
      int state = 0;
      if (waitpid(process->first, &state, WNOHANG) <= 0) {
        ++process;
        continue;
      }
      note(process->second, state);
      process = running_.erase(process);
    }
    if (deadline_ && Clock::now() > *deadline_) {
      is_killing_ = true;
      send(SIGKILL);
    }
  }

 private:
  void note(int rank, int state) {
    const int status = WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state);
    if (status == 0 || is_killing_) return;
    constexpr int kConsequence = static_cast<int>(ExitCode::kCommunication);
    if (status_ == 0 || status_ == kConsequence) status_ = status;
    if (!deadline_) deadline_ = Clock::now() + kTimeToEnd;
    if (WIFSIGNALED(state))
      print_error(
          command_,
          fmt::format("rank {} was ended by signal {} ({})", rank, WTERMSIG(state), sigdescr_np(WTERMSIG(state))),
          err_);
  }

  std::string_view command_;
  std::ostream& err_;
  std::map<pid_t, int> running_;  // their ranks
  int status_ = 0;
  bool is_killing_ = false;
  std::optional<Clock::time_point> deadline_;
};

}  // namespace

std::vector<std::string> torchrun_variables(const ProcessesToStart& processes, int rank) {
  return {fmt::format("RANK={}", rank),
          fmt::format("WORLD_SIZE={}", processes.count),
          fmt::format("LOCAL_RANK={}", rank),
          fmt::format("LOCAL_WORLD_SIZE={}", processes.count),
          "MASTER_ADDR=127.0.0.1",
          fmt::format("MASTER_PORT={}", processes.port),
          "TORCHELASTIC_USE_AGENT_STORE=True",
          fmt::format("TORCHELASTIC_RUN_ID={}", processes.run_id),
          "TORCHELASTIC_RESTART_COUNT=0"};
}

int run_processes(const ProcessesToStart& processes, std::string_view command, std::ostream& err) {
  const WaitedSignals signals;
  Processes running(command, err);
  for (int rank = 0; rank < processes.count; ++rank)
    running.add(start(processes.command, environment_with(torchrun_variables(processes, rank)), signals.before()),
                rank);
  while (!running.all_have_ended()) {
    const int signal = signals.next();
    if (signal != 0 && signal != SIGCHLD) running.send(signal);
    running.look();
  }
  return running.status();
}

}  // namespace megatron
