#include "megatron/dist_checkpointing/save_lock.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "megatron/base/error.h"

namespace megatron {
namespace {

constexpr const char* kLockFile = ".save_lock";
constexpr const char* kUnreadable = "unreadable";

std::string unique_token() {
  std::random_device random;
  return fmt::format("{:08x}{:08x}{:08x}", random(), random(), random());
}

std::string time_text() {
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(std::chrono::system_clock::now()));
}

bool is_token(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

/// Nothing if no file has that name. Other processes make and remove such files all the time: one that was removed
/// before it was opened, and is there again when its error is looked at, is read again.
std::optional<std::string> content_if_any(const FileSystem& files, const std::string& path) {
  constexpr int kMostAttempts = 100;
  for (int attempt = 1;; ++attempt) {
    try {
      return read_file(files, path);
    } catch (const IoError&) {
      if (!files.exists(path)) return std::nullopt;
      if (attempt == kMostAttempts) throw;
    }
  }
}

}  // namespace

std::string SaveLock::content() const {
  const ProcessIdentity& process = own_.process;
  const nlohmann::ordered_json json = {
      {"host", process.host},       {"process_id", process.process_id},       {"start_ticks", process.start_ticks},
      {"boot_id", process.boot_id}, {"pid_namespace", process.pid_namespace}, {"since", own_.since},
      {"token", own_.token}};
  return json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

SaveLock::Holder SaveLock::parse(const std::string& content) {
  try {
    const auto json = nlohmann::json::parse(content);
    Holder holder{.process = {.host = json.at("host").get<std::string>(),
                              .boot_id = json.at("boot_id").get<std::string>(),
                              .pid_namespace = json.at("pid_namespace").get<int64_t>(),
                              .process_id = json.at("process_id").get<int64_t>(),
                              .start_ticks = json.at("start_ticks").get<int64_t>()},
                  .since = json.at("since").get<std::string>(),
                  .token = json.at("token").get<std::string>()};
    if (is_token(holder.token)) return holder;
  } catch (const nlohmann::json::exception&) {  // as below
  }
  return {.process = {}, .since = {}, .token = kUnreadable};
}

std::string SaveLock::describe(const Holder& holder) {
  if (holder.token == kUnreadable) return "a run whose lock file cannot be read";
  return fmt::format("process {} on host {}, since {}", holder.process.process_id, holder.process.host, holder.since);
}

std::string SaveLock::successor_path(const std::string& token) const {
  return fmt::format("{}.after.{}", path_, token);
}

/// From the lock file to the end of the chain, which is the holder. Empty if there is no lock file.
std::vector<SaveLock::Holder> SaveLock::holders() const {
  std::vector<Holder> chain;
  for (std::string path = path_; const auto content = content_if_any(files_, path);) {
    chain.push_back(parse(*content));
    if (chain.size() > 1 && chain.back().token == kUnreadable) break;
    path = successor_path(chain.back().token);
  }
  return chain;
}

SaveLock::SaveLock(FileSystem& files, const std::string& directory, const Options& options)
    : files_(files),
      folder_(fmt::format("{} {}", options.flag, directory)),
      directory_(directory),
      path_(join_path(directory, kLockFile)),
      own_{.process = options.process, .since = time_text(), .token = unique_token()} {
  while (!files_.create_file(path_, content())) {
    const std::vector<Holder> chain = holders();
    if (chain.empty()) continue;  // released in between
    require_succession(chain.back(), options.takes_over);
    if (succeed(chain.back())) return;
  }
}

void SaveLock::require_succession(const Holder& holder, bool takes_over) const {
  const ProcessState state = state_of(holder.process);
  if (state == ProcessState::kEnded || (state == ProcessState::kUnknown && takes_over)) return;
  const std::string heading = fmt::format(
      "[checkpoint] {} is in use by another run: {} ({}). Two runs in one folder would destroy each other's "
      "checkpoints.",
      folder_, describe(holder), path_);
  if (state == ProcessState::kRuns)
    throw CheckpointError(heading + " Wait until it has ended, or give this run another folder.");
  throw CheckpointError(
      fmt::format("{} This process, on host {}, cannot find out whether that one still runs: it was started on another "
                  "host, in another container or before the last boot. If it has ended, add --take-over-save-lock; "
                  "otherwise give this run another folder.",
                  heading, own_.process.host));
}

/// @return false if another run was quicker
bool SaveLock::succeed(const Holder& holder) {
  const std::string claim = successor_path(holder.token);
  if (!files_.create_file(claim, content())) return false;
  const std::vector<Holder> chain = holders();
  // The holder may have been succeeded, and the claim of its successor removed, before this run made its claim.
  if (chain.empty() || chain.back().token != own_.token) {
    files_.remove(claim);
    return false;
  }
  replace_file(files_, path_, content());
  for (const Holder& former : chain)
    if (former.token != own_.token) files_.remove(successor_path(former.token));
  note_ =
      fmt::format("{}: took the place of {}, which {}", folder_, describe(holder),
                  state_of(holder.process) == ProcessState::kEnded ? "has ended without removing its lock"
                                                                   : "has ended according to --take-over-save-lock");
  return true;
}

bool SaveLock::is_held() const {
  const std::vector<Holder> chain = holders();
  return !chain.empty() && chain.back().token == own_.token;
}

void SaveLock::require_held() {
  std::vector<Holder> chain = holders();
  if (chain.empty()) {
    create_durable_directories(files_, directory_);
    if (files_.create_file(path_, content())) return;
    chain = holders();
  }
  if (!chain.empty() && chain.back().token == own_.token) return;
  throw CheckpointError(
      fmt::format("[checkpoint] {} was taken over from this run: {}. Two runs in one folder would destroy each "
                  "other's checkpoints, so this one ends without saving. To go on with it, end the other one.",
                  folder_, chain.empty() ? "it was locked by a run that has ended since" : describe(chain.back())));
}

SaveLock::~SaveLock() {
  try {
    if (is_held()) files_.remove(path_);
  } catch (const IoError&) {  // the next run sees that the process has ended
  }
}

}  // namespace megatron
