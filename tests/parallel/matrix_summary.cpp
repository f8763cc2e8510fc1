#include "tests/parallel/matrix_summary.h"

#include <fmt/chrono.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "megatron/telemetry/progress.h"

namespace megatron::testing {
namespace {

/// The largest error of one kind, and whose it is.
struct Worst {
  std::optional<double> error;
  std::string name;
  void take(const std::optional<double>& other, const std::string& of) {
    if (other && !(error >= other)) *this = {other, of};
  }
  std::string text() const { return error ? fmt::format("{:.1e}", *error) : "-"; }
};

struct GroupSummary {
  size_t num_cases = 0, num_run = 0, num_failed = 0;
  double seconds = 0;
  Worst loss, grad_norm;
  void add(const GroupSummary& other) {
    num_cases += other.num_cases;
    num_run += other.num_run;
    num_failed += other.num_failed;
    seconds += other.seconds;
  }
};
using Groups = std::map<std::string, GroupSummary>;

std::string table_of(const Groups& groups) {
  std::string text =
      "| group | run | of | failed | largest error of a loss | of a gradient norm | seconds |\n"
      "|---|--:|--:|--:|--:|--:|--:|\n";
  for (const auto& [name, group] : groups)
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {:.0f} |\n", name, group.num_run, group.num_cases,
                        group.num_failed, group.loss.text(), group.grad_norm.text(), group.seconds);
  return text;
}

std::string worst_of(const Groups& groups) {
  std::string text = "Where the largest errors were, for `full_matrix --only`:\n\n";
  for (const auto& [name, group] : groups)
    for (const auto& [kind, worst] : {std::pair("loss", &group.loss), std::pair("gradient norm", &group.grad_norm)})
      if (worst->error) text += fmt::format("- {}, {} {}: `{}`\n", name, kind, worst->text(), worst->name);
  return text;
}

std::string time_text(double seconds) {
  return fmt::format("{:%Y-%m-%d %H:%M}", fmt::gmtime(static_cast<std::time_t>(seconds)));
}

}  // namespace

MatrixSummary summarize(const std::vector<MatrixCase>& cases, const std::vector<RecordedCase>& finished) {
  Groups groups;
  std::set<std::pair<std::string, std::string>> asked;
  for (const MatrixCase& one : cases) {
    ++groups[one.group].num_cases;
    asked.emplace(one.group, one.name);
  }
  std::vector<RecordedCase> done;
  std::ranges::copy_if(finished, std::back_inserter(done), [&](const RecordedCase& one) {
    return asked.contains({one.group, one.name});
  });
  double first = 0, last = 0;
  std::string failures;
  for (const RecordedCase& one : done) {
    GroupSummary& group = groups[one.group];
    ++group.num_run;
    group.seconds += one.seconds;
    group.loss.take(one.outcome.loss_error, one.name);
    group.grad_norm.take(one.outcome.grad_norm_error, one.name);
    const double began = one.end_time - one.seconds;
    first = first == 0 ? began : std::min(first, began);
    last = std::max(last, one.end_time);
    if (one.outcome.failure.empty()) continue;
    ++group.num_failed;
    failures += fmt::format("\nFAILED: {}: `{}`: {}\n", one.group, one.name, one.outcome.failure);
  }
  GroupSummary sum;
  for (const auto& [name, group] : groups) sum.add(group);
  return {.markdown = table_of(groups) +
                      fmt::format("\n{} of {} cases were run, {} failed. From {} to {} UTC; {} of one process.\n",
                                  sum.num_run, sum.num_cases, sum.num_failed, time_text(first), time_text(last),
                                  duration_text(sum.seconds)) +
                      "\n" + worst_of(groups) + failures,
          .has_passed = sum.num_run == sum.num_cases && sum.num_failed == 0};
}

}  // namespace megatron::testing
