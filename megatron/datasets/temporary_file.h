// A temporary file that is renamed when it is complete.
#pragma once

#include <filesystem>
#include <string>

namespace megatron {

/// A file beside `final_path`, called FINAL.tmp.PROCESS.NUMBER, which is removed unless it is renamed or kept. It
/// is locked (flock) while the object lives, so that others can distinguish it from leftovers of a killed process.
class TemporaryFile {
 public:
  /// A new, empty file. @throw IoError if no file can be created there.
  explicit TemporaryFile(const std::filesystem::path& final_path);
  /// A file that a process that has ended left behind. @throw IoError if it is missing, or a process still has it.
  TemporaryFile(const std::filesystem::path& final_path, const std::string& existing);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  const std::string& name() const { return name_; }
  int descriptor() const { return descriptor_; }
  /// Gives the file its final name. @throw IoError
  void rename();
  /// Says whether the destructor leaves the file under its temporary name.
  void set_kept(bool kept) { kept_ = kept; }

 private:
  bool open_and_lock();

  std::string final_path_, name_;
  int descriptor_ = -1;
  bool renamed_ = false, kept_ = false;
};

/// Removes the temporary files beside `final_path` whose processes have ended. Never throws: files that cannot be
/// removed stay.
void remove_abandoned_files(const std::filesystem::path& final_path) noexcept;

}  // namespace megatron
