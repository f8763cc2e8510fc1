// Metrics as JSON lines: one object per line, so that any tool can follow a run.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "megatron/base/file_system.h"
#include "megatron/telemetry/training_log.h"

namespace megatron {

/// One member of an object.
struct JsonField {
  std::string name;
  std::variant<std::int64_t, double, bool, std::string> value;
};

/// {"iteration":10,"lm_loss":2.31} in the order given. NaN and infinities are not JSON: they become null.
/// Numbers are the shortest text that reads back equal; bytes that are not UTF-8 become U+FFFD.
std::string json_object_line(std::span<const JsonField> fields);

/// Appends to a file, so that a resumed run continues it. Each line is visible to readers at once. Not thread-safe.
class JsonlWriter {
 public:
  /// Creates the directory and the file if they are missing.
  /// @throw IoError
  JsonlWriter(FileSystem& files, const std::string& path);

  /// @throw IoError
  void write(std::span<const JsonField> fields);

 private:
  std::unique_ptr<WritableFile> file_;
};

/// Every line begins with "event" ("training" or "evaluation"), "time" (unix seconds), "iteration" and "set" ("train",
/// "validation", "validation-name" or "test").
///
/// The fields of a training log line: those, "consumed_samples", "elapsed_ms_per_iteration", ..., the losses with
/// blanks as underscores ("lm_loss"). Absent values are left out; a NaN loss stays, as null.
std::vector<JsonField> training_fields(const TrainingLogValues& values);

/// The same fields, then each loss with the name of its dataset: "validation_lm_loss".
/// @param set  as above; in the names of losses a dash becomes an underscore.
std::vector<JsonField> evaluation_fields(WallTime time, std::int64_t iteration, std::string_view set,
                                         std::span<const NamedValue> losses);

}  // namespace megatron
