#include "megatron/dist_checkpointing/checkpoint_directory.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <map>

#include "megatron/base/error.h"
#include "megatron/base/size_text.h"
#include "megatron/base/word_list.h"
#include "megatron/dist_checkpointing/checkpoint_files.h"
#include "megatron/dist_checkpointing/legacy_checkpoint.h"

namespace megatron {
namespace {

constexpr std::string_view kPrefix = "iter_";
constexpr size_t kMinDigits = 7;
constexpr const char* kTracker = "latest_checkpointed_iteration.txt";
constexpr const char* kRelease = "release";
constexpr const char* kSaving = "saving";      // being written
constexpr const char* kReplaced = "replaced";  // complete, until its successor has the name
constexpr const char* kDeleting = "deleting";
constexpr const char* kAside = "aside";           // not complete, where another of its iteration was saved
constexpr const char* kRemovable = ".removable";  // in a checkpoint that a newer one makes superfluous

std::string name_of(int64_t iteration) { return fmt::format("{}{:07}", kPrefix, iteration); }
std::string name_of(int64_t iteration, const char* suffix) { return fmt::format("{}.{}", name_of(iteration), suffix); }

std::optional<int64_t> parse_iteration(std::string_view digits) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || end != digits.data() + digits.size() || value < 0) return std::nullopt;
  return value;
}

std::string without_last_slashes(std::string path) {
  while (path.size() > 1 && path.ends_with('/')) path.pop_back();
  return path;
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

}  // namespace

CheckpointDirectory::CheckpointDirectory(FileSystem& files, std::string root)
    : files_(files), root_(without_last_slashes(std::move(root))) {}

std::string CheckpointDirectory::staging_path(int64_t iteration) const {
  return full_path(name_of(iteration, kSaving));
}
std::string CheckpointDirectory::path(int64_t iteration) const { return full_path(name_of(iteration)); }

std::vector<CheckpointDirectory::Entry> CheckpointDirectory::entries() const {
  std::vector<Entry> entries;
  if (!files_.exists(root_)) return entries;
  for (const DirectoryEntry& item : files_.list(root_)) {
    std::string_view rest = item.name;
    if (!rest.starts_with(kPrefix) || (item.type != EntryType::kDirectory && item.type != EntryType::kSymlink))
      continue;
    rest.remove_prefix(kPrefix.size());
    const std::string_view digits = rest.substr(0, rest.find('.'));
    const auto iteration = parse_iteration(digits);
    if (!iteration || digits.size() < kMinDigits) continue;
    rest.remove_prefix(digits.size());
    entries.push_back({item.name, *iteration, std::string(rest.empty() ? rest : rest.substr(1)), item.type});
  }
  return entries;
}

bool CheckpointDirectory::is_complete(const std::string& name) const {
  const std::string path = full_path(name);
  return (files_.exists(join_path(path, kBackendFile)) && files_.exists(join_path(path, kMetadataFile))) ||
         LegacyCheckpoint::is_in(files_, path);
}

/// A crash within the removal leaves nothing that looks like a checkpoint.
void CheckpointDirectory::remove_atomically(const std::string& name) {
  const std::string doomed = full_path(fmt::format("{}.{}", name.substr(0, name.find('.')), kDeleting));
  files_.remove(doomed);
  files_.rename(full_path(name), doomed);
  files_.sync_directory(root_);
  files_.remove(doomed);
}

std::string CheckpointDirectory::set_aside(int64_t iteration) {
  std::string aside = full_path(name_of(iteration, kAside));
  for (int number = 2; files_.exists(aside); ++number)
    aside = full_path(fmt::format("{}{}", name_of(iteration, kAside), number));
  files_.rename(path(iteration), aside);
  return fmt::format("{} is not complete; it is kept as {}", path(iteration), aside);
}

std::vector<std::string> CheckpointDirectory::begin(int64_t iteration) {
  std::vector<std::string> removed;
  create_durable_directories(files_, root_);
  for (const Entry& entry : entries()) {
    if (entry.suffix == kReplaced && !files_.exists(path(entry.iteration))) {  // its successor never came
      files_.rename(full_path(entry.name), path(entry.iteration));
      continue;
    }
    const bool stale = entry.suffix == kDeleting || entry.suffix == kReplaced ||
                       (entry.suffix == kSaving && !in_progress_.contains(entry.iteration));
    if (!stale) continue;
    files_.remove(full_path(entry.name));
    removed.push_back(fmt::format("removed {}, left by an interrupted save or deletion", full_path(entry.name)));
  }
  if (files_.exists(path(iteration)) && !is_complete(name_of(iteration))) removed.push_back(set_aside(iteration));
  files_.remove(staging_path(iteration));
  files_.create_directories(staging_path(iteration));
  files_.sync_directory(root_);
  in_progress_.insert(iteration);
  return removed;
}

void CheckpointDirectory::commit(int64_t iteration, const CheckpointMetadata& metadata, Integrity integrity,
                                 const FileHashes& hashes) {
  metadata.require_complete();
  write_index(files_, staging_path(iteration), metadata);
  if (integrity == Integrity::kSha256) write_integrity(files_, staging_path(iteration), hashes);
  make_visible(iteration);
}

void CheckpointDirectory::commit_legacy(int64_t iteration) {
  require<CheckpointError>(LegacyCheckpoint::is_in(files_, staging_path(iteration)),
                           "[checkpoint] {} has no file of a rank.", staging_path(iteration));
  files_.sync_directory(staging_path(iteration));
  make_visible(iteration);
}

void CheckpointDirectory::make_visible(int64_t iteration) {
  require(in_progress_.contains(iteration), "[checkpoint] commit of iteration {} without begin", iteration);
  const std::string name = name_of(iteration), replaced = name_of(iteration, kReplaced);
  const bool replaces = files_.exists(full_path(name));
  if (replaces) {
    files_.remove(full_path(replaced));
    files_.rename(full_path(name), full_path(replaced));
  }
  files_.rename(staging_path(iteration), full_path(name));
  files_.sync_directory(root_);
  in_progress_.erase(iteration);
  replace_file(files_, full_path(kTracker), fmt::format("{}", iteration));
  if (replaces) remove_atomically(replaced);
}

void CheckpointDirectory::require_space(int64_t bytes) const {
  const int64_t available = files_.available_bytes(root_);
  require<CheckpointError>(available >= bytes,
                           "[checkpoint] {} has {} left, the checkpoint needs {}. Delete old checkpoints or "
                           "keep fewer (--save-retain-interval), or save elsewhere (--save).",
                           root_, size_text(available), size_text(bytes));
}

std::vector<int64_t> CheckpointDirectory::complete() const {
  std::set<int64_t> iterations;
  for (const Entry& entry : entries())
    if ((entry.suffix.empty() || entry.suffix == kReplaced) && is_complete(entry.name))
      iterations.insert(entry.iteration);
  return {iterations.begin(), iterations.end()};
}

std::vector<int64_t> CheckpointDirectory::superfluous(const KeepRule& rule) const {
  std::vector<int64_t> iterations = complete();
  const auto num_kept = static_cast<size_t>(std::max<int64_t>(rule.last, 1));
  iterations.resize(iterations.size() - std::min(iterations.size(), num_kept));
  const auto hint = parse_iteration(tracker());
  const std::vector<Entry> found = entries();
  std::erase_if(iterations, [&](int64_t iteration) {
    const bool is_directory = std::ranges::any_of(found, [&](const Entry& entry) {
      return entry.iteration == iteration && entry.suffix.empty() && entry.type == EntryType::kDirectory;
    });
    return !is_directory || iteration == hint || (rule.every > 0 && iteration % rule.every == 0);
  });
  return iterations;
}

void CheckpointDirectory::remove(int64_t iteration) { remove_atomically(name_of(iteration)); }

bool CheckpointDirectory::is_checkpoint() const {
  return files_.exists(full_path(kBackendFile)) || files_.exists(full_path(kMetadataFile)) ||
         LegacyCheckpoint::is_in(files_, root_);
}

/// The reason why an iteration cannot be loaded, as the end of a sentence about it.
std::string CheckpointDirectory::problem_of(int64_t iteration) const {
  return files_.exists(path(iteration)) ? "is not complete" : "does not exist";
}

CheckpointDirectory::Found CheckpointDirectory::find(int64_t iteration) const {
  for (const std::string& name : {name_of(iteration), name_of(iteration, kReplaced)})
    if (is_complete(name)) return {iteration, full_path(name)};
  const auto others = complete();
  throw CheckpointError(fmt::format("[checkpoint] iteration {} in {} {}. Complete are: {}.", iteration, root_,
                                    problem_of(iteration), others.empty() ? "none" : joined(others, ", ")));
}

std::string CheckpointDirectory::tracker() const {
  const std::string path = full_path(kTracker);
  return files_.exists(path) ? std::string(trimmed(read_file(files_, path))) : "";
}

bool CheckpointDirectory::is_empty() const {
  if (!files_.exists(root_)) return true;
  const auto found = entries();
  const bool has_any =
      std::ranges::any_of(found, [](const Entry& entry) { return entry.suffix.empty() || entry.suffix == kReplaced; });
  return !has_any && tracker().empty() && !files_.exists(full_path(kRelease)) && !is_checkpoint();
}

std::string CheckpointDirectory::problem_of_tracker(const std::string& content) const {
  if (content.empty()) return "is missing or empty";
  const auto iteration = parse_iteration(content);
  return iteration ? fmt::format("names iteration {}, which {}", *iteration, problem_of(*iteration))
                   : fmt::format("names \"{}\", which is no complete checkpoint", content);
}

void CheckpointDirectory::refuse(const std::string& tracker_content) const {
  const auto iterations = complete();
  if (iterations.empty() && tracker_content.empty() && is_checkpoint()) {
    const auto slash = root_.rfind('/');
    const std::string_view name = std::string_view(root_).substr(slash == std::string::npos ? 0 : slash + 1);
    const auto iteration = name.starts_with(kPrefix) ? parse_iteration(name.substr(kPrefix.size())) : std::nullopt;
    throw CheckpointError(fmt::format("[checkpoint] {} is one checkpoint. Give the folder that it is in: {}{}", root_,
                                      parent_path(root_), iteration ? fmt::format(" --ckpt-step {}", *iteration) : ""));
  }
  const std::string remedy =
      iterations.empty() ? fmt::format(
                               "{} holds no complete checkpoint. Restore one, or give a folder without "
                               "checkpoints to start from initial weights.",
                               root_)
                         : fmt::format("Complete are: {}. Choose one with --ckpt-step.", joined(iterations, ", "));
  throw CheckpointError(
      fmt::format("[checkpoint] {} {}. {}", full_path(kTracker), problem_of_tracker(tracker_content), remedy));
}

CheckpointDirectory::Latest CheckpointDirectory::latest() const {
  if (is_empty()) return {};
  const std::string named = tracker();
  if (named == kRelease && is_complete(kRelease)) return {Found{std::nullopt, full_path(kRelease)}, {}};
  const auto iterations = complete();
  const auto hint = parse_iteration(named);
  if (hint && std::ranges::binary_search(iterations, *hint)) {
    Latest latest{find(*hint), {}};
    if (iterations.back() > *hint)
      latest.warnings.push_back(
          fmt::format("{} names iteration {}, but iteration {} is complete too. Loading {}; --ckpt-step {} loads the "
                      "newer one.",
                      full_path(kTracker), *hint, iterations.back(), *hint, iterations.back()));
    return latest;
  }
  const auto end = hint            ? std::ranges::lower_bound(iterations, *hint)
                   : named.empty() ? iterations.end()
                                   : iterations.begin();
  if (end == iterations.begin()) refuse(named);
  const int64_t newest = *std::prev(end);
  return {find(newest),
          {fmt::format("{} {}. Loading iteration {}, the newest complete one{}.", full_path(kTracker),
                       problem_of_tracker(named), newest, hint ? " before it" : "")}};
}

void CheckpointDirectory::mark_for_removal(const Retention& retention) {
  const auto iterations = complete();
  if (retention.retain_interval <= 0 || iterations.empty() || iterations.back() % retention.retain_interval == 0)
    return;
  for (const Entry& entry : entries())
    if (entry.iteration == iterations.back() && entry.suffix.empty() && entry.type == EntryType::kDirectory)
      replace_file(files_, join_path(full_path(entry.name), kRemovable), "");
}

std::vector<int64_t> CheckpointDirectory::prune(const Retention& retention) {
  if (retention.retain_interval <= 0) return {};
  const auto iterations = complete();
  const auto hint = parse_iteration(tracker());
  std::vector<int64_t> candidates;
  for (size_t i = 0; i + 1 < iterations.size(); ++i)
    if (i + 2 == iterations.size() || files_.exists(join_path(path(iterations[i]), kRemovable)))
      candidates.push_back(iterations[i]);
  std::erase_if(candidates,
                [&](int64_t iteration) { return iteration == hint || iteration % retention.retain_interval == 0; });
  std::vector<int64_t> deleted;
  for (const Entry& entry : entries()) {
    const bool chosen = std::ranges::find(candidates, entry.iteration) != candidates.end();
    if (!chosen || !entry.suffix.empty() || entry.type == EntryType::kSymlink) continue;
    remove_atomically(entry.name);
    deleted.push_back(entry.iteration);
  }
  return deleted;
}

}  // namespace megatron
