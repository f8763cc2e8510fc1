// A file system whose data files can be held up, or fail, while others are written.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "megatron/base/error.h"
#include "tests/testing/forwarding_file_system.h"

namespace megatron::testing {

/// Passes everything on to `files`. While the gate is closed, data files of checkpoints (*.distcp) wait in append().
/// Thread-safe.
class GatedFileSystem final : public ForwardingFileSystem {
 public:
  explicit GatedFileSystem(FileSystem& files) : ForwardingFileSystem(files) {}

  void close_gate() {
    set([this] { is_open_ = false; });
  }
  void open_gate() {
    set([this] { is_open_ = true; });
  }
  /// From now on appending to data files is this error; nothing: it works again.
  void fail(std::optional<std::string> reason) {
    set([&] { failure_ = std::move(reason); });
  }
  /// Threads that wait at the gate, at most one for each file.
  int num_waiting() const {
    const std::lock_guard lock(mutex_);
    return num_waiting_;
  }
  /// Returns when a thread waits at the gate.
  void wait_for_writer() const {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return num_waiting_ > 0; });
  }

  std::unique_ptr<WritableFile> open_for_writing(const std::string& path, WriteMode mode) override {
    auto file = ForwardingFileSystem::open_for_writing(path, mode);
    if (!path.ends_with(".distcp")) return file;
    return std::make_unique<File>(*this, std::move(file));
  }

 private:
  class File final : public WritableFile {
   public:
    File(GatedFileSystem& owner, std::unique_ptr<WritableFile> file) : owner_(owner), file_(std::move(file)) {}
    void append(std::span<const std::byte> bytes) override {
      owner_.pass();
      file_->append(bytes);
    }
    void sync() override { file_->sync(); }
    void close() override { file_->close(); }

   private:
    GatedFileSystem& owner_;
    std::unique_ptr<WritableFile> file_;
  };

  template <class Change>
  void set(Change change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    ++num_waiting_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return is_open_; });
    --num_waiting_;
    if (failure_) throw IoError(*failure_);
  }

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool is_open_ = true;
  std::optional<std::string> failure_;
  int num_waiting_ = 0;
};

}  // namespace megatron::testing
