// An offline run of Weights & Biases: `wandb sync FOLDER` uploads it later.
// Format: LevelDB's log around messages of wandb/proto/wandb_internal.proto (wandb/sdk/internal/datastore.py of 0.16).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "megatron/base/file_system.h"
#include "megatron/telemetry/timestamp.h"
#include "megatron/telemetry/training_log.h"

namespace megatron {

struct WandbRunOptions {
  std::string directory;  // below it is wandb/offline-run-TIME-ID/run-ID.wandb
  std::string project, name;
  std::string entity;  // empty: the default entity of the uploading user
  std::string host;
  std::int64_t process_id = 0;  // part of the ID
  WallTime start;
};

/// Writes one new file. Values of one step are one row, written when the next step begins. Not thread-safe.
class WandbRun {
 public:
  /// @param config  settings by name, as texts. @throw IoError
  WandbRun(FileSystem& files, const WandbRunOptions& options, const std::map<std::string, std::string>& config);
  /// Writes pending values, the last value of each curve, and the end of the run: with an exception, if there is
  /// one. Errors of writing are ignored.
  ~WandbRun();
  WandbRun(const WandbRun&) = delete;
  WandbRun& operator=(const WandbRun&) = delete;

  /// Values at `step`, which does not decrease. @throw IoError
  void log(WallTime now, std::int64_t step, std::span<const NamedValue> values);

  const std::string& path() const { return path_; }

 private:
  void write_row();
  void write_end(int exit_code);
  void write_record(std::string_view record_fields);
  void write_fragment(int type, std::string_view data);

  std::string path_;
  std::unique_ptr<WritableFile> file_;
  std::int64_t file_bytes_ = 0, num_records_ = 0;
  WallTime start_, last_;
  std::int64_t step_ = 0;
  std::map<std::string, std::string> row_, latest_;  // JSON values by name
  int exceptions_at_start_ = 0;
};

}  // namespace megatron
