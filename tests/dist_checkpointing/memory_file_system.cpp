#include "tests/dist_checkpointing/memory_file_system.h"

#include <fmt/core.h>

#include "megatron/base/error.h"

namespace megatron {

struct MemoryFileSystem::Node {
  bool is_directory = false;
  std::string content, synced_content;
  std::map<std::string, std::shared_ptr<Node>> entries, synced_entries;

  void crash(AfterCrash left) {
    if (left == AfterCrash::kSyncedOnly) entries = synced_entries;
    if (left != AfterCrash::kEverything) content = synced_content;
    synced_entries = entries;
    synced_content = content;
    for (auto& [name, node] : entries) node->crash(left);
  }
};

class MemoryWritableFile final : public WritableFile {
 public:
  MemoryWritableFile(MemoryFileSystem& files, std::shared_ptr<MemoryFileSystem::Node> node)
      : files_(files), node_(std::move(node)) {}
  void append(std::span<const std::byte> bytes) override {
    const std::lock_guard lock(files_.mutex_);
    const bool fails = files_.count_operation();
    const size_t count = fails ? bytes.size() / 2 : bytes.size();
    node_->content.append(reinterpret_cast<const char*>(bytes.data()), count);
    if (fails) throw IoError("[file system] cannot write: No space left on device");
  }
  void sync() override {
    const std::lock_guard lock(files_.mutex_);
    files_.count_or_throw();
    node_->synced_content = node_->content;
  }
  void close() override {
    const std::lock_guard lock(files_.mutex_);
    files_.count_or_throw();
  }

 private:
  MemoryFileSystem& files_;
  std::shared_ptr<MemoryFileSystem::Node> node_;
};

namespace {

std::string name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }
std::string directory_of(const std::string& path) {
  const std::string parent = parent_path(path);
  return parent == "." ? "" : parent;
}

}  // namespace

MemoryFileSystem::MemoryFileSystem() : root_(std::make_shared<Node>()) { root_->is_directory = true; }

MemoryFileSystem::NodePointer MemoryFileSystem::find(const std::string& path) const {
  if (path.empty() || path == ".") return root_;
  const NodePointer parent = find(directory_of(path));
  if (!parent) return nullptr;
  const auto found = parent->entries.find(name_of(path));
  return found == parent->entries.end() ? nullptr : found->second;
}

MemoryFileSystem::NodePointer MemoryFileSystem::require_directory(const std::string& path) const {
  NodePointer node = find(path);
  require<IoError>(node && node->is_directory, "[file system] no directory {}", path);
  return node;
}

bool MemoryFileSystem::count_operation() {
  const int64_t operation = num_operations_++;
  if (fault_at_ < 0) return false;
  if (fault_ == Fault::kCrash && operation > fault_at_) throw IoError("[file system] the machine is down");
  return operation == fault_at_;
}
void MemoryFileSystem::count_or_throw() {
  if (count_operation()) throw IoError("[file system] injected fault");
}

void MemoryFileSystem::recover(AfterCrash left) {
  fault_at_ = -1;
  root_->crash(left);
}

std::unique_ptr<WritableFile> MemoryFileSystem::open_for_writing(const std::string& path, WriteMode mode) {
  const std::lock_guard lock(mutex_);
  count_or_throw();
  const NodePointer parent = require_directory(directory_of(path));
  NodePointer& node = parent->entries[name_of(path)];
  if (!node) node = std::make_shared<Node>();
  if (mode == WriteMode::kTruncate) node->content.clear();
  return std::make_unique<MemoryWritableFile>(*this, node);
}

std::unique_ptr<ReadableFile> MemoryFileSystem::open_for_reading(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  const NodePointer node = find(path);
  require<IoError>(node && !node->is_directory, "[file system] cannot open {}: No such file", path);
  return std::make_unique<MemoryFile>(node->content);
}

bool MemoryFileSystem::create_file(const std::string& path, std::string_view content) {
  const std::lock_guard lock(mutex_);
  count_or_throw();
  const auto [entry, is_new] = require_directory(directory_of(path))->entries.try_emplace(name_of(path));
  if (!is_new) return false;
  entry->second = std::make_shared<Node>();
  entry->second->content = entry->second->synced_content = content;
  return true;
}

bool MemoryFileSystem::exists(const std::string& path) const {
  const std::lock_guard lock(mutex_);
  return find(path) != nullptr;
}

std::vector<DirectoryEntry> MemoryFileSystem::list(const std::string& directory) const {
  const std::lock_guard lock(mutex_);
  std::vector<DirectoryEntry> entries;
  for (const auto& [name, node] : require_directory(directory)->entries)
    entries.push_back({name, node->is_directory ? EntryType::kDirectory : EntryType::kFile});
  return entries;
}

void MemoryFileSystem::create_directories(const std::string& path) {
  const std::lock_guard lock(mutex_);
  count_or_throw();
  NodePointer node = root_;
  for (size_t begin = 0; begin < path.size();) {
    const size_t end = std::min(path.find('/', begin), path.size());
    NodePointer& entry = node->entries[path.substr(begin, end - begin)];
    if (!entry) {
      entry = std::make_shared<Node>();
      entry->is_directory = true;
    }
    node = entry;
    begin = end + 1;
  }
}

void MemoryFileSystem::rename(const std::string& from, const std::string& to) {
  const std::lock_guard lock(mutex_);
  count_or_throw();
  const NodePointer node = find(from), target = find(to);
  require<IoError>(node != nullptr, "[file system] cannot rename {}: No such file", from);
  require<IoError>(!target || target->entries.empty(), "[file system] cannot rename to {}: Directory not empty", to);
  require_directory(directory_of(from))->entries.erase(name_of(from));
  require_directory(directory_of(to))->entries[name_of(to)] = node;
}

/// Removes entry by entry, as a real file system does, so that a crash leaves a part.
void MemoryFileSystem::remove(const std::string& path) {
  std::vector<std::string> names;
  {
    const std::lock_guard lock(mutex_);
    const NodePointer node = find(path);
    if (!node) return;
    for (const auto& [name, entry] : node->entries) names.push_back(name);
  }
  for (const std::string& name : names) remove(join_path(path, name));
  const std::lock_guard lock(mutex_);
  count_or_throw();
  require_directory(directory_of(path))->entries.erase(name_of(path));
}

void MemoryFileSystem::sync_directory(const std::string& path) {
  const std::lock_guard lock(mutex_);
  count_or_throw();
  const NodePointer node = require_directory(path);
  node->synced_entries = node->entries;
}

int64_t MemoryFileSystem::available_bytes(const std::string&) const { return space_bytes; }

}  // namespace megatron
