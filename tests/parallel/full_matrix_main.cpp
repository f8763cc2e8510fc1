// Runs the full matrix and notes every case that has ended in a file, from which the next run of the same commit goes
// on.
//
//   full_matrix --record FILE --commit TEXT [--jobs N] [--only TEXT] [--summary]
//
// --commit   what the record belongs to; one of another commit begins anew
// --jobs     processes; default 1
// --only     cases whose group or name has this in it
// --summary  prints what the record holds as Markdown, and runs nothing
//
// Exit status: 0 if all cases have passed, 1 if any has failed or is missing, 2 for wrong arguments.
#include <fmt/chrono.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <set>
#include <span>
#include <thread>

#include "megatron/base/error.h"
#include "megatron/telemetry/progress.h"
#include "tests/parallel/full_matrix.h"

namespace megatron::testing {
namespace {

struct Arguments {
  std::string record, commit, only;
  size_t jobs = 1;
  bool is_summary = false;
};

Arguments parse(std::span<char*> words) {
  Arguments arguments;
  for (size_t i = 1; i < words.size(); ++i) {
    const std::string_view flag = words[i];
    const auto value = [&] {
      require<ConfigError>(i + 1 < words.size(), "{} needs a value", flag);
      return std::string(words[++i]);
    };
    if (flag == "--record")
      arguments.record = value();
    else if (flag == "--commit")
      arguments.commit = value();
    else if (flag == "--only")
      arguments.only = value();
    else if (flag == "--jobs")
      arguments.jobs = static_cast<size_t>(std::max(1, std::stoi(value())));
    else if (flag == "--summary")
      arguments.is_summary = true;
    else
      throw ConfigError(fmt::format("unknown argument '{}'", flag));
  }
  require<ConfigError>(!arguments.record.empty() && !arguments.commit.empty(), "--record and --commit are needed");
  return arguments;
}

using Key = std::pair<std::string, std::string>;

std::set<Key> finished(const RunRecord& record) {
  std::set<Key> keys;
  for (const RecordedCase& done : record.cases()) keys.emplace(done.group, done.name);
  return keys;
}

double seconds_since_1970() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void run_case(const MatrixCase& one, const RunRecord& record) {
  RecordedCase done{.group = one.group, .name = one.name};
  const auto begin = std::chrono::steady_clock::now();
  try {
    done.outcome = one.run();
  } catch (const std::exception& error) {
    done.outcome.failure = error.what();
  }
  done.end_time = seconds_since_1970();
  done.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  record.append(done);
}

/// A process that runs cases one by one.
struct Worker {
  std::vector<const MatrixCase*> cases;
  pid_t process = 0;
};

void start(Worker& worker, const RunRecord& record) {
  worker.process = ::fork();
  require<Error>(worker.process >= 0, "cannot start a process");
  if (worker.process > 0) return;
  for (const MatrixCase* one : worker.cases) run_case(*one, record);
  std::_Exit(0);
}

/// Of a worker that has ended: the case in which it died is noted as failed, and another process goes on behind it.
void go_on(Worker& worker, int status, const RunRecord& record) {
  worker.process = 0;
  const std::set<Key> keys = finished(record);
  std::erase_if(worker.cases, [&](const MatrixCase* one) { return keys.contains({one->group, one->name}); });
  if (worker.cases.empty()) return;
  record.append(
      {.group = worker.cases.front()->group,
       .name = worker.cases.front()->name,
       .end_time = seconds_since_1970(),
       .outcome = {.failure = fmt::format("its process ended with {} {}", WIFSIGNALED(status) ? "signal" : "status",
                                          WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status))}});
  worker.cases.erase(worker.cases.begin());
  if (!worker.cases.empty()) start(worker, record);
}

ProgressBar make_bar() {
  return ProgressBar({.is_terminal = ::isatty(STDERR_FILENO) == 1, .line_interval = std::chrono::seconds(30)},
                     [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); });
}

void run(const std::vector<MatrixCase>& cases, const RunRecord& record, size_t jobs) {
  const std::set<Key> before = finished(record);
  std::vector<Worker> workers(jobs);
  size_t next = 0;
  for (const MatrixCase& one : cases)
    if (!before.contains({one.group, one.name})) workers[next++ % jobs].cases.push_back(&one);
  ProgressBar bar = make_bar();
  const auto total = static_cast<int64_t>(before.size() + next);
  bar.begin({.title = "full matrix", .unit = "cases", .total = total, .start = static_cast<int64_t>(before.size())});
  for (Worker& worker : workers)
    if (!worker.cases.empty()) start(worker, record);
  size_t num_told = 0;
  const auto tell = [&] {
    const std::vector<RecordedCase> all = record.cases();
    size_t num_failed = 0;
    for (const RecordedCase& one : all) {
      if (one.outcome.failure.empty() || ++num_failed <= num_told) continue;
      bar.message(fmt::format("FAILED: {}: {}: {}", one.group, one.name, one.outcome.failure));
      num_told = num_failed;
    }
    bar.update(static_cast<int64_t>(all.size()), fmt::format("{} failed", num_failed));
  };
  while (std::any_of(workers.begin(), workers.end(), [](const Worker& worker) { return worker.process > 0; })) {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    for (Worker& worker : workers) {
      int status = 0;
      if (worker.process > 0 && ::waitpid(worker.process, &status, WNOHANG) == worker.process)
        go_on(worker, status, record);
    }
    tell();
  }
  bar.end();
}

struct GroupSummary {
  size_t num_cases = 0, num_run = 0, num_failed = 0;
  double seconds = 0;
  CaseOutcome worst;
};

/// Prints the table. @return whether all cases have passed.
bool summarize(const std::vector<MatrixCase>& cases, const RunRecord& record) {
  std::vector<RecordedCase> done = record.cases();
  std::map<std::string, GroupSummary> groups;
  std::set<Key> asked;
  for (const MatrixCase& one : cases) {
    ++groups[one.group].num_cases;
    asked.emplace(one.group, one.name);
  }
  std::erase_if(done, [&](const RecordedCase& one) { return !asked.contains({one.group, one.name}); });
  double first = 0, last = 0;
  for (const RecordedCase& one : done) {
    GroupSummary& group = groups[one.group];
    ++group.num_run;
    group.num_failed += !one.outcome.failure.empty();
    group.seconds += one.seconds;
    group.worst.loss_error = std::max(group.worst.loss_error, one.outcome.loss_error);
    group.worst.grad_norm_error = std::max(group.worst.grad_norm_error, one.outcome.grad_norm_error);
    const double began = one.end_time - one.seconds;
    first = first == 0 ? began : std::min(first, began);
    last = std::max(last, one.end_time);
  }
  fmt::print(
      "| group | run | of | failed | largest error of a loss | of a gradient norm | seconds |\n"
      "|---|--:|--:|--:|--:|--:|--:|\n");
  GroupSummary sum;
  for (const auto& [name, group] : groups) {
    fmt::print("| {} | {} | {} | {} | {:.1e} | {:.1e} | {:.0f} |\n", name, group.num_run, group.num_cases,
               group.num_failed, group.worst.loss_error, group.worst.grad_norm_error, group.seconds);
    sum.num_cases += group.num_cases;
    sum.num_run += group.num_run;
    sum.num_failed += group.num_failed;
    sum.seconds += group.seconds;
  }
  fmt::print("\n{} of {} cases were run, {} failed. From {:%Y-%m-%d %H:%M} to {:%H:%M} UTC; {} of one process.\n",
             sum.num_run, sum.num_cases, sum.num_failed, fmt::gmtime(static_cast<std::time_t>(first)),
             fmt::gmtime(static_cast<std::time_t>(last)), duration_text(sum.seconds));
  for (const RecordedCase& one : done)
    if (!one.outcome.failure.empty()) fmt::print("\nFAILED: {}: `{}`: {}\n", one.group, one.name, one.outcome.failure);
  return sum.num_run == sum.num_cases && sum.num_failed == 0;
}

int main_of(std::span<char*> words) {
  const Arguments arguments = parse(words);
  std::vector<MatrixCase> cases = full_matrix();
  std::erase_if(cases, [&](const MatrixCase& one) {
    return one.group.find(arguments.only) == std::string::npos && one.name.find(arguments.only) == std::string::npos;
  });
  require<ConfigError>(!cases.empty(), "no case has '{}' in its group or its name", arguments.only);
  const RunRecord record(arguments.record, arguments.commit);
  if (!arguments.is_summary) run(cases, record, arguments.jobs);
  return summarize(cases, record) ? 0 : 1;
}

}  // namespace
}  // namespace megatron::testing

int main(int argc, char** argv) {
  try {
    return megatron::testing::main_of({argv, static_cast<size_t>(argc)});
  } catch (const megatron::ConfigError& error) {
    fmt::print(stderr, "full_matrix: {}\n", error.what());
    return 2;
  } catch (const std::exception& error) {
    fmt::print(stderr, "full_matrix: {}\n", error.what());
    return 1;
  }
}
