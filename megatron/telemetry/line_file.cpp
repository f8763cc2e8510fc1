#include "megatron/telemetry/line_file.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>

namespace megatron {
namespace {

/// Also true for a link to one. Links need the operating system.
bool is_file(const FileSystem& files, const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  std::error_code ignored;  // a link may lead to nothing yet
  return std::ranges::any_of(files.list(parent_path(path)), [&](const DirectoryEntry& entry) {
    return entry.name == name && (entry.type == EntryType::kFile || (entry.type == EntryType::kSymlink &&
                                                                     std::filesystem::is_regular_file(path, ignored)));
  });
}

/// Only for regular files: reading from a pipe may block forever.
bool is_cut_off(const FileSystem& files, const std::string& path) {
  if (!is_file(files, path)) return false;
  const auto file = files.open_for_reading(path);
  std::array<char, 1> last = {'\n'};
  if (file->size() > 0) file->read(file->size() - 1, std::as_writable_bytes(std::span(last)));
  return last[0] != '\n';
}

}  // namespace

std::unique_ptr<WritableFile> open_line_file(FileSystem& files, const std::string& path) {
  files.create_directories(parent_path(path));
  const bool needs_end = is_cut_off(files, path);
  auto file = files.open_for_writing(path, WriteMode::kAppend);
  if (needs_end) file->append(std::as_bytes(std::span("\n", 1)));
  return file;
}

}  // namespace megatron
