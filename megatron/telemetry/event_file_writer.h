// TensorBoard event files: scalars and texts that `tensorboard --logdir` shows during the run.
// Format: TFRecord frames around tensorflow.Event messages (event.proto, summary.proto, tensor.proto).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "megatron/base/file_system.h"
#include "megatron/telemetry/timestamp.h"
#include "megatron/telemetry/training_log.h"

namespace megatron {

/// Distinguishes the files of several writers in one directory.
struct EventFileIdentity {
  std::string host;
  std::int64_t process_id = 0;
  int serial = 0;  // counts the writers of one process
};

/// Writes one new file `events.out.tfevents.<unix time>.<host>.<process>.<serial>`. Each call writes one
/// event, which readers see at once. Not thread-safe.
class EventFileWriter {
 public:
  /// Makes the directory and the file.
  /// @throw IoError
  EventFileWriter(FileSystem& files, const std::string& directory, const EventFileIdentity& identity, WallTime now);

  /// One point of each named curve at `step`. Values are stored in float32; NaN and infinities are kept.
  /// @throw IoError
  void add_scalars(WallTime now, std::int64_t step, std::span<const NamedValue> scalars);

  /// A text of the "Text" tab, shown as Markdown. The tag gets the suffix "/text_summary", as in torch's writer.
  /// @throw IoError
  void add_text(WallTime now, std::int64_t step, std::string_view tag, std::string_view text);

  const std::string& path() const { return path_; }

 private:
  void write_record(const std::string& event);

  std::string path_;
  std::unique_ptr<WritableFile> file_;
};

}  // namespace megatron
