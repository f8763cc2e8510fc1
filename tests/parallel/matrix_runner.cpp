#include "tests/parallel/matrix_runner.h"

#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <set>
#include <thread>

#include "megatron/base/error.h"

namespace megatron::testing {
namespace {

using Clock = std::chrono::steady_clock;
using Key = std::pair<std::string, std::string>;

std::set<Key> keys_of(const std::vector<RecordedCase>& finished) {
  std::set<Key> keys;
  for (const RecordedCase& done : finished) keys.emplace(done.group, done.name);
  return keys;
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void run_case(const MatrixCase& one, const RunRecord& record) {
  RecordedCase done{.group = one.group, .name = one.name};
  const auto begin = Clock::now();
  try {
    done.outcome = one.run();
  } catch (const std::exception& error) {
    done.outcome.failure = error.what();
  }
  done.end_time = seconds_since_1970();
  done.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  record.append(done);
}

/// A process that runs cases one by one. The first of them is running.
struct Worker {
  std::vector<const MatrixCase*> cases;
  pid_t process = 0;
  Clock::time_point since;  // when the first case began, to within a poll
};

void start(Worker& worker, const RunRecord& record) {
  worker.since = Clock::now();
  worker.process = ::fork();
  require<Error>(worker.process >= 0, "cannot start a process");
  if (worker.process > 0) return;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // else a run that is killed would still append to the record of the next one
  for (const MatrixCase* one : worker.cases) run_case(*one, record);
  std::_Exit(0);
}

/// Notes the first case of a worker whose process has ended as failed; another process continues behind it.
void go_on(Worker& worker, const std::string& failure, const RunRecord& record) {
  worker.process = 0;
  if (worker.cases.empty()) return;
  record.append({.group = worker.cases.front()->group,
                 .name = worker.cases.front()->name,
                 .end_time = seconds_since_1970(),
                 .seconds = std::chrono::duration<double>(Clock::now() - worker.since).count(),
                 .outcome = {.failure = failure}});
  worker.cases.erase(worker.cases.begin());
  if (!worker.cases.empty()) start(worker, record);
}

std::string text_of(int status) {
  return WIFSIGNALED(status) ? fmt::format("its process ended with signal {}", WTERMSIG(status))
                             : fmt::format("its process ended with status {}", WEXITSTATUS(status));
}

void look_after(Worker& worker, const RunRecord& record, std::chrono::milliseconds limit) {
  int status = 0;
  // The process is asked before the record: what has ended has noted all that it finished.
  const bool has_ended = ::waitpid(worker.process, &status, WNOHANG) == worker.process;
  const std::set<Key> finished = keys_of(record.cases());
  const size_t num_erased = std::erase_if(worker.cases, [&](const MatrixCase* one) {
    return finished.contains({one->group, one->name});
  });
  if (num_erased > 0) worker.since = Clock::now();
  if (has_ended) return go_on(worker, text_of(status), record);
  if (worker.cases.empty() || Clock::now() - worker.since < limit) return;
  ::kill(worker.process, SIGKILL);
  ::waitpid(worker.process, &status, 0);
  go_on(worker, fmt::format("has not ended after {} s", std::chrono::duration<double>(limit).count()), record);
}

}  // namespace

void run_cases(const std::vector<MatrixCase>& cases, const RunRecord& record, const RunnerOptions& options,
               const std::function<void(const std::vector<RecordedCase>&)>& tell) {
  const std::set<Key> before = keys_of(record.cases());
  std::vector<Worker> workers(options.jobs);
  size_t next = 0;
  for (const MatrixCase& one : cases)
    if (!before.contains({one.group, one.name})) workers[next++ % options.jobs].cases.push_back(&one);
  for (Worker& worker : workers)
    if (!worker.cases.empty()) start(worker, record);
  while (std::ranges::any_of(workers, [](const Worker& worker) { return worker.process > 0; })) {
    std::this_thread::sleep_for(options.poll);
    for (Worker& worker : workers)
      if (worker.process > 0) look_after(worker, record, options.case_limit);
    tell(record.cases());
  }
}

}  // namespace megatron::testing
