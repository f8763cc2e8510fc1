#include "megatron/base/host_memory_files.h"

#include <unistd.h>

#include <algorithm>

#include "megatron/base/error.h"

namespace megatron {

class HostMemoryFiles::Content {
 public:
  void append(std::span<const std::byte> bytes) {
    const std::lock_guard lock(mutex_);
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void clear() {
    const std::lock_guard lock(mutex_);
    bytes_.clear();
  }
  int64_t size() const {
    const std::lock_guard lock(mutex_);
    return static_cast<int64_t>(bytes_.size());
  }
  void read(int64_t offset, std::span<std::byte> out) const {
    const std::lock_guard lock(mutex_);
    const auto begin = static_cast<size_t>(offset);
    require<IoError>(offset >= 0 && begin <= bytes_.size() && out.size() <= bytes_.size() - begin,
                     "[files in memory] cannot read {} bytes at {} of a file of {}", out.size(), offset, bytes_.size());
    std::copy_n(bytes_.begin() + offset, out.size(), out.begin());
  }

 private:
  mutable std::mutex mutex_;
  std::vector<std::byte> bytes_;
};

class HostMemoryFiles::Writer final : public WritableFile {
 public:
  explicit Writer(std::shared_ptr<Content> content) : content_(std::move(content)) {}
  void append(std::span<const std::byte> bytes) override { content_->append(bytes); }
  void sync() override {}
  void close() override {}

 private:
  std::shared_ptr<Content> content_;
};

class HostMemoryFiles::Reader final : public ReadableFile {
 public:
  explicit Reader(std::shared_ptr<const Content> content) : content_(std::move(content)) {}
  int64_t size() const override { return content_->size(); }
  void read(int64_t offset, std::span<std::byte> out) const override { content_->read(offset, out); }

 private:
  std::shared_ptr<const Content> content_;
};

namespace {

bool is_root(const std::string& path) { return path.empty() || path == "."; }

/// Returns the text before the names of a directory's entries.
std::string prefix_of(const std::string& directory) { return is_root(directory) ? "" : directory + "/"; }

}  // namespace

bool HostMemoryFiles::is_directory(const std::string& path) const {
  return is_root(path) || directories_.contains(path);
}

void HostMemoryFiles::require_directory_of(const std::string& path) const {
  const std::string parent = parent_path(path);
  require<IoError>(is_directory(parent), "[files in memory] cannot make {}: there is no directory {}", path, parent);
}

std::unique_ptr<WritableFile> HostMemoryFiles::open_for_writing(const std::string& path, WriteMode mode) {
  const std::lock_guard lock(mutex_);
  require_directory_of(path);
  require<IoError>(!is_directory(path), "[files in memory] cannot write {}: it is a directory", path);
  std::shared_ptr<Content>& content = files_[path];
  if (!content)
    content = std::make_shared<Content>();
  else if (mode == WriteMode::kTruncate)
    content->clear();
  return std::make_unique<Writer>(content);
}

std::unique_ptr<ReadableFile> HostMemoryFiles::open_for_reading(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const auto found = files_.find(path);
  require<IoError>(found != files_.end(), "[files in memory] cannot open {}: there is no such file", path);
  return std::make_unique<Reader>(found->second);
}

bool HostMemoryFiles::create_file(const std::string& path, std::string_view content) {
  const std::lock_guard lock(mutex_);
  require_directory_of(path);
  if (is_directory(path)) return false;
  const auto [entry, is_new] = files_.try_emplace(path);
  if (!is_new) return false;
  entry->second = std::make_shared<Content>();
  entry->second->append(std::as_bytes(std::span(content)));
  return true;
}

bool HostMemoryFiles::exists(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  return is_directory(path) || files_.contains(path);
}

std::vector<DirectoryEntry> HostMemoryFiles::list(const std::string& directory) const {
  const std::lock_guard lock(mutex_);
  require<IoError>(is_directory(directory), "[files in memory] there is no directory {}", directory);
  const std::string prefix = prefix_of(directory);
  std::vector<DirectoryEntry> entries;
  const auto add = [&](const std::string& path, EntryType type) {
    if (path.starts_with(prefix) && path.find('/', prefix.size()) == std::string::npos)
      entries.push_back({path.substr(prefix.size()), type});
  };
  for (const auto& [path, content] : files_) add(path, EntryType::kFile);
  for (const std::string& path : directories_) add(path, EntryType::kDirectory);
  std::ranges::sort(entries, {}, &DirectoryEntry::name);
  return entries;
}

void HostMemoryFiles::create_directories(const std::string& path) {
  const std::lock_guard lock(mutex_);
  if (is_root(path)) return;
  for (size_t end = path.find('/', 1); end != std::string::npos; end = path.find('/', end + 1))
    directories_.insert(path.substr(0, end));
  directories_.insert(path);
}

void HostMemoryFiles::rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  require<IoError>(is_directory(from) || files_.contains(from),
                   "[files in memory] cannot rename {}: there is no such file", from);
  require_directory_of(to);
  const std::string old_prefix = prefix_of(from), new_prefix = prefix_of(to);
  const bool is_occupied =
      std::ranges::any_of(files_, [&](const auto& file) { return file.first.starts_with(new_prefix); });
  require<IoError>(!is_occupied, "[files in memory] cannot rename {} to {}: that directory is not empty", from, to);
  const auto renamed = [&](const std::string& path) {
    if (path == from) return to;
    return path.starts_with(old_prefix) ? new_prefix + path.substr(old_prefix.size()) : path;
  };
  std::map<std::string, std::shared_ptr<Content>> files;
  for (auto& [path, content] : files_)
    if (path != to) files[renamed(path)] = std::move(content);
  files_ = std::move(files);
  std::set<std::string> directories;
  for (const std::string& path : directories_) directories.insert(renamed(path));
  directories_ = std::move(directories);
}

void HostMemoryFiles::remove(const std::string& path) {
  const std::lock_guard lock(mutex_);
  const auto is_inside = [&, prefix = prefix_of(path)](const std::string& other) {
    return other == path || other.starts_with(prefix);
  };
  std::erase_if(files_, [&](const auto& file) { return is_inside(file.first); });
  std::erase_if(directories_, is_inside);
}

int64_t HostMemoryFiles::available_bytes(const std::string&) const {
  return sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE);
}

int64_t HostMemoryFiles::total_bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t bytes = 0;
  for (const auto& [path, content] : files_) bytes += content->size();
  return bytes;
}

}  // namespace megatron
