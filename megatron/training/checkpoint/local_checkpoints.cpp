#include "megatron/training/checkpoint/local_checkpoints.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <functional>
#include <map>
#include <sstream>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"
#include "megatron/comm/texts.h"
#include "megatron/dist_checkpointing/checkpoint_files.h"
#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/training/checkpoint/folder_transfer.h"
#include "megatron/training/checkpoint/local_state.h"
#include "megatron/training/checkpoint/save_folder.h"

namespace megatron {
namespace {

constexpr const char* kLayoutFile = "layout.txt";
constexpr std::string_view kOwnerPrefix = "of_";
constexpr int kNoHolder = -1;

/// Returns the fault of a checkpoint; empty if all of it can be read.
std::string damage_of(const FileSystem& files, const std::string& path) {
  try {
    return joined(CheckpointReader(files, path, Verify::kChecksums).verify(), "; ");
  } catch (const Error& error) {
    return error.what();
  }
}

/// The first line that differs, as the end of a sentence; empty if none does.
std::string difference(const std::string& stored, const std::string& own) {
  std::istringstream stored_lines(stored), own_lines(own);
  std::string stored_line, own_line;
  while (true) {
    const bool has_stored = static_cast<bool>(std::getline(stored_lines, stored_line));
    const bool has_own = static_cast<bool>(std::getline(own_lines, own_line));
    if (!has_stored && !has_own) return {};
    if (has_stored && has_own && stored_line == own_line) continue;
    return fmt::format("it has '{}', this run has '{}'", has_stored ? stored_line : "", has_own ? own_line : "");
  }
}

/// Logs the problems of all ranks, one warning for each rank that has one. @return whether any rank has one.
bool warn_of_problems(const ProcessGroup& world, const std::string& own, const MessageLog& log) {
  bool has_any = false;
  for (const std::string& text : gather_texts(world, own, "problems of local checkpoints")) {
    if (text.empty()) continue;
    has_any = true;
    log.warning(text);
  }
  return has_any;
}

}  // namespace

std::vector<int> replica_clique(int rank, int64_t jump, int64_t factor) {
  const int64_t group = jump * factor, first = rank / group * group + rank % jump;
  std::vector<int> clique;
  for (int64_t i = 0; i < factor; ++i) clique.push_back(static_cast<int>(first + i * jump));
  return clique;
}

LocalCheckpoints::LocalCheckpoints(FileSystem& files, const CheckpointConfig& config, MessageLog log,
                                   std::function<void()> require_ownership)
    : files_(files), config_(config), log_(std::move(log)), require_ownership_(std::move(require_ownership)) {}

std::string LocalCheckpoints::folder_of(int rank) const { return local_rank_folder(config_, rank); }

CheckpointDirectory LocalCheckpoints::held_by(int holder, int owner) const {
  return {files_, join_path(folder_of(holder), fmt::format("{}{}", kOwnerPrefix, owner))};
}

std::vector<int> LocalCheckpoints::owners_held_by(int holder) const {
  std::vector<int> owners;
  if (!files_.exists(folder_of(holder))) return owners;
  for (const DirectoryEntry& entry : files_.list(folder_of(holder))) {
    std::string_view name = entry.name;
    if (!name.starts_with(kOwnerPrefix)) continue;
    name.remove_prefix(kOwnerPrefix.size());
    int owner = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), owner);
    if (error == std::errc() && end == name.data() + name.size() && owner >= 0) owners.push_back(owner);
  }
  return owners;
}

std::vector<int64_t> LocalCheckpoints::remove_held(int rank, const std::function<bool(int64_t)>& is_removed) const {
  std::vector<int64_t> removed;
  for (const int owner : owners_held_by(rank)) {
    CheckpointDirectory directory = held_by(rank, owner);
    for (const int64_t iteration : directory.complete()) {
      if (!is_removed(iteration)) continue;
      directory.remove(iteration);
      if (owner == rank) removed.push_back(iteration);
    }
  }
  return removed;
}

SavedCheckpoint LocalCheckpoints::save(Trainer& trainer) {
  if (require_ownership_) require_ownership_();
  const ProcessGroup& world = trainer.groups().world;
  // No rank removes anything before all know that the run still has its folders.
  world.barrier({.site = "local checkpoint ownership"}).wait();
  const int rank = world.rank();
  const int64_t iteration = trainer.progress().iteration;
  // Iterations from here on belong to an abandoned run: beside new parts of other ranks they would look complete.
  remove_held(rank, [&](int64_t other) { return other >= iteration; });
  CheckpointDirectory own = held_by(rank, rank);
  for (const std::string& line : own.begin(iteration)) log_.info(line);
  const LocalState state(trainer);
  CheckpointWriter writer(files_, own.staging_path(iteration), rank);
  state.add_to(writer);
  own.require_space(writer.estimated_bytes());
  write_synced(files_, join_path(own.staging_path(iteration), kLayoutFile), state.layout(config_.save.value()));
  world.barrier({.site = "local checkpoint begin"}).wait();
  const auto num_files = static_cast<int>(config_.dist_ckpt_workers);
  own.commit(iteration, writer.write(num_files, WriteThreads::kCallerAlone), Integrity::kNone);
  if (config_.replication) replicate(world, iteration);
  world.barrier({.site = "local checkpoint commit"}).wait();
  log_.info(fmt::format("  successfully saved local checkpoint from iteration {:7d} to {}", iteration,
                        *config_.non_persistent_local_ckpt_dir));
  return {.iteration = iteration,
          .removed = remove_held(rank, [&](int64_t other) { return other < iteration; }),
          .in_background = false};
}

void LocalCheckpoints::replicate(const ProcessGroup& world, int64_t iteration) const {
  const std::vector<int> clique =
      replica_clique(world.rank(), config_.replication_jump.value(), config_.replication_factor);
  // All members go through the pairs in one order, so that no two wait for each other.
  for (const int sender : clique)
    for (const int receiver : clique) {
      if (sender == receiver) continue;
      if (world.rank() == sender) send(world, sender, iteration, receiver);
      if (world.rank() == receiver) receive(world, sender, iteration, sender);
    }
}

void LocalCheckpoints::send(const ProcessGroup& world, int owner, int64_t iteration, int receiver) const {
  send_folder(world, receiver, files_, held_by(world.rank(), owner).find(iteration).path);
}

void LocalCheckpoints::receive(const ProcessGroup& world, int owner, int64_t iteration, int sender) const {
  CheckpointDirectory directory = held_by(world.rank(), owner);
  directory.begin(iteration);
  const std::string staging = directory.staging_path(iteration);
  receive_folder(world, sender, files_, staging);
  directory.commit(iteration, read_index(files_, staging), Integrity::kNone);
}

std::optional<LocalCheckpoints::Complete> LocalCheckpoints::find(const ProcessGroup& world, int64_t first) const {
  std::string own;
  for (const int owner : owners_held_by(world.rank()))
    for (const int64_t iteration : held_by(world.rank(), owner).complete())
      own += fmt::format("{} {}\n", owner, iteration);
  std::map<int64_t, std::vector<int>, std::greater<>> by_iteration;  // the holder of each rank's part; newest first
  int holder = 0;
  for (const std::string& held : gather_texts(world, own, "local checkpoints")) {
    std::istringstream lines(held);
    int64_t iteration = 0;
    for (int owner = 0; lines >> owner >> iteration;) {
      if (owner >= world.size() || iteration < first) continue;
      auto& holders = by_iteration[iteration];
      holders.resize(static_cast<size_t>(world.size()), kNoHolder);
      int& chosen = holders[static_cast<size_t>(owner)];
      if (chosen == kNoHolder || owner == holder) chosen = holder;
    }
    ++holder;
  }
  for (const auto& [iteration, holders] : by_iteration) {
    std::vector<int> lacking;
    for (int rank = 0; rank < world.size(); ++rank)
      if (holders[static_cast<size_t>(rank)] == kNoHolder) lacking.push_back(rank);
    if (lacking.empty()) return Complete{iteration, holders};
    log_.warning(
        fmt::format("--non-persistent-local-ckpt-dir: no rank holds iteration {} of rank {}; an older "
                    "checkpoint is loaded. With --replication other ranks hold copies",
                    iteration, joined(lacking, ", ")));
  }
  return std::nullopt;
}

bool LocalCheckpoints::remove_damaged(const ProcessGroup& world, const Complete& found) const {
  std::string removed;
  for (int owner = 0; owner < world.size(); ++owner) {
    if (found.holders[static_cast<size_t>(owner)] != world.rank()) continue;
    CheckpointDirectory directory = held_by(world.rank(), owner);
    const std::string damage = damage_of(files_, directory.find(found.iteration).path);
    if (damage.empty()) continue;
    directory.remove(found.iteration);
    removed += fmt::format("{}a local checkpoint on rank {} is damaged and was deleted: {}",
                           removed.empty() ? "" : "; ", world.rank(), damage);
  }
  return warn_of_problems(world, removed, log_);
}

std::optional<CheckpointDirectory::Found> LocalCheckpoints::newest(Trainer& trainer,
                                                                   const CheckpointDirectory::Found& persistent) {
  if (!persistent.iteration && !persistent.path.empty()) return std::nullopt;  // a release has no iteration to compare
  const ProcessGroup& world = trainer.groups().world;
  const int rank = world.rank();
  std::optional<Complete> found = find(world, persistent.iteration.value_or(0));
  while (found && remove_damaged(world, *found)) found = find(world, persistent.iteration.value_or(0));
  if (!found) return std::nullopt;
  for (int owner = 0; owner < world.size(); ++owner) {
    const int holder = found->holders[static_cast<size_t>(owner)];
    if (holder == owner) continue;
    log_.info(fmt::format("  rank {} receives its local checkpoint of iteration {} from rank {}", owner,
                          found->iteration, holder));
    if (rank == holder) send(world, owner, found->iteration, owner);
    if (rank == owner) receive(world, owner, found->iteration, holder);
  }
  const CheckpointDirectory::Found own = held_by(rank, rank).find(found->iteration);
  const std::string layout = join_path(own.path, kLayoutFile);
  const std::string other = difference(files_.exists(layout) ? read_file(files_, layout) : "",
                                       LocalState(trainer).layout(config_.load.value()));
  const std::string warning =
      other.empty() ? ""
                    : fmt::format(
                          "the local checkpoint of iteration {} is of another run or layout, and the "
                          "persistent one is loaded: on rank {} {}. Local checkpoints go on with the run, the "
                          "layout and the optimizer that wrote them",
                          found->iteration, rank, other);
  if (warn_of_problems(world, warning, log_)) return std::nullopt;
  return own;
}

}  // namespace megatron
