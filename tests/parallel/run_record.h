// The file in which a long run notes each case that it has finished, so that another run goes on there.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace megatron::testing {

/// The outcome of one case.
struct CaseOutcome {
  std::optional<double> loss_error, grad_norm_error;  // largest departures; nothing where none was looked for
  std::string failure;                                // empty: passed
};

struct RecordedCase {
  std::string group, name;
  double end_time = 0, seconds = 0;  // seconds since 1970; how long it took
  CaseOutcome outcome;
};

/// One line a case, under a line that names the commit. Several processes may append to one file.
class RunRecord {
 public:
  /// Goes on with the file if it is of the same commit; else begins it anew.
  /// @throw IoError if the file cannot be written.
  RunRecord(std::string path, std::string_view commit);

  /// Lines that were cut off are left out.
  std::vector<RecordedCase> cases() const;
  /// In one write: a run that is killed leaves whole lines.
  void append(const RecordedCase& done) const;

 private:
  std::string path_;
};

}  // namespace megatron::testing
