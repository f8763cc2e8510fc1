// Runs the full matrix and notes every case that has ended in a file, from which the next run of the same commit goes
// on.
//
//   full_matrix --record FILE --commit TEXT [--jobs N] [--case-seconds N] [--only TEXT] [--summary]
//
// --commit        what the record belongs to; one of another commit begins anew
// --jobs          processes; default 1
// --case-seconds  a case that takes longer has failed, and the run goes on behind it; default 600
// --only          cases whose group or name has this in it
// --summary       prints what the record holds as Markdown, and runs nothing
//
// Exit status: 0 if all cases have passed, 1 if any has failed or is missing, 2 for wrong arguments.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <span>

#include "megatron/base/error.h"
#include "megatron/telemetry/progress.h"
#include "tests/parallel/full_matrix.h"
#include "tests/parallel/matrix_summary.h"

namespace megatron::testing {
namespace {

struct Arguments {
  std::string record, commit, only;
  RunnerOptions options;
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
    const auto number = [&] { return std::max(1, std::stoi(value())); };
    if (flag == "--record")
      arguments.record = value();
    else if (flag == "--commit")
      arguments.commit = value();
    else if (flag == "--only")
      arguments.only = value();
    else if (flag == "--jobs")
      arguments.options.jobs = static_cast<size_t>(number());
    else if (flag == "--case-seconds")
      arguments.options.case_limit = std::chrono::seconds(number());
    else if (flag == "--summary")
      arguments.is_summary = true;
    else
      throw ConfigError(fmt::format("unknown argument '{}'", flag));
  }
  require<ConfigError>(!arguments.record.empty() && !arguments.commit.empty(), "--record and --commit are needed");
  return arguments;
}

void run(const std::vector<MatrixCase>& cases, const RunRecord& record, const RunnerOptions& options) {
  ProgressBar bar({.is_terminal = ::isatty(STDERR_FILENO) == 1, .line_interval = std::chrono::seconds(30)},
                  [](std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); });
  bar.begin({.title = "full matrix",
             .unit = "cases",
             .total = static_cast<int64_t>(cases.size()),
             .start = static_cast<int64_t>(record.cases().size())});
  size_t num_told = 0;
  run_cases(cases, record, options, [&](const std::vector<RecordedCase>& finished) {
    size_t num_failed = 0;
    for (const RecordedCase& one : finished) {
      if (one.outcome.failure.empty() || ++num_failed <= num_told) continue;
      bar.message(fmt::format("FAILED: {}: {}: {}", one.group, one.name, one.outcome.failure));
      num_told = num_failed;
    }
    bar.update(static_cast<int64_t>(finished.size()), fmt::format("{} failed", num_failed));
  });
  bar.end();
}

int main_of(std::span<char*> words) {
  const Arguments arguments = parse(words);
  std::vector<MatrixCase> cases = full_matrix();
  std::erase_if(cases, [&](const MatrixCase& one) {
    return one.group.find(arguments.only) == std::string::npos && one.name.find(arguments.only) == std::string::npos;
  });
  require<ConfigError>(!cases.empty(), "no case has '{}' in its group or its name", arguments.only);
  const RunRecord record(arguments.record, arguments.commit);
  if (!arguments.is_summary) run(cases, record, arguments.options);
  const MatrixSummary summary = summarize(cases, record.cases());
  fmt::print("{}", summary.markdown);
  return summary.has_passed ? 0 : 1;
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
