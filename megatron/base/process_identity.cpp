#include "megatron/base/process_identity.h"

#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <optional>
#include <sstream>

namespace megatron {
namespace {

int64_t own_pid_namespace() {
  struct stat status {};
  return ::stat("/proc/self/ns/pid", &status) == 0 ? static_cast<int64_t>(status.st_ino) : 0;
}

/// Fields of /proc/PID/stat, see proc(5).
struct ProcessStat {
  char state = 0;
  int64_t num_threads = 0, start_ticks = 0;
};

/// Nothing if there is no such process, or it is hidden from this user.
std::optional<ProcessStat> stat_of(int64_t process_id) {
  std::ifstream file(fmt::format("/proc/{}/stat", process_id));
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  const size_t end_of_name = line.rfind(')');  // a program's name may hold blanks and parentheses
  if (end_of_name == std::string::npos) return std::nullopt;
  std::istringstream fields(line.substr(end_of_name + 1));
  constexpr int kState = 3, kNumThreads = 20, kStartTicks = 22;
  ProcessStat stat;
  std::string field;
  for (int number = kState; number <= kStartTicks && fields >> field; ++number) {
    if (number == kState) stat.state = field.front();
    if (number == kNumThreads) stat.num_threads = std::stoll(field);
    if (number == kStartTicks) stat.start_ticks = std::stoll(field);
  }
  return stat;
}

/// A process that was killed stays in the table as a zombie until its parent asks for its status.
bool has_ended(const ProcessStat& stat) { return stat.state == 'X' || (stat.state == 'Z' && stat.num_threads <= 1); }

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

ProcessIdentity own_process() {
  const int64_t process_id = ::getpid();
  return {.host = host_name(),
          .boot_id = boot_id(),
          .pid_namespace = own_pid_namespace(),
          .process_id = process_id,
          .start_ticks = stat_of(process_id).value_or(ProcessStat{}).start_ticks};
}

ProcessState state_of(const ProcessIdentity& process) {
  const ProcessIdentity own = own_process();
  const bool is_comparable = !own.boot_id.empty() && own.pid_namespace != 0 && process.host == own.host &&
                             process.boot_id == own.boot_id && process.pid_namespace == own.pid_namespace;
  if (!is_comparable || process.process_id <= 0) return ProcessState::kUnknown;
  if (const auto stat = stat_of(process.process_id))
    return stat->start_ticks == process.start_ticks && !has_ended(*stat) ? ProcessState::kRuns : ProcessState::kEnded;
  const bool exists = ::kill(static_cast<pid_t>(process.process_id), 0) == 0 || errno != ESRCH;
  return exists ? ProcessState::kRuns : ProcessState::kEnded;
}

}  // namespace megatron
