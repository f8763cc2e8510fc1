#include "megatron/training/checkpoint/checkpoint_saver.h"

#include <fmt/core.h>

#include <chrono>
#include <sstream>

#include "megatron/comm/texts.h"
#include "megatron/dist_checkpointing/background_write.h"
#include "megatron/dist_checkpointing/checkpoint_files.h"
#include "megatron/dist_checkpointing/metadata_pickle.h"

namespace megatron {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

int64_t sum_of_ranks(const ProcessGroup& world, int64_t value, std::string_view site) {
  world.all_reduce({&value, DType::kInt64, {1}, {1}}, ReduceOp::kSum, {.site = site}).wait();
  return value;
}

/// The metadata of the shares of all ranks, on rank 0; nothing on other ranks.
CheckpointMetadata merged_on_first(const ProcessGroup& world, const CheckpointMetadata& own) {
  const std::string text = world.rank() == 0 ? "" : write_metadata(own);
  auto bytes = static_cast<int64_t>(text.size());
  std::vector<int64_t> sizes(static_cast<size_t>(world.size()));
  world
      .all_gather({&bytes, DType::kInt64, {1}, {1}},
                  {sizes.data(), DType::kInt64, {static_cast<int64_t>(world.size())}, {1}},
                  {.site = "checkpoint index size"})
      .wait();
  if (world.rank() > 0) {
    world.send({text.data(), DType::kUInt8, {bytes}, {1}}, 0, 0, {.site = "checkpoint index"}).wait();
    return {};
  }
  CheckpointMetadata merged = own;
  for (int rank = 1; rank < world.size(); ++rank) {
    std::vector<std::byte> received(static_cast<size_t>(sizes[static_cast<size_t>(rank)]));
    world
        .recv({received.data(), DType::kUInt8, {static_cast<int64_t>(received.size())}, {1}}, rank, 0,
              {.site = "checkpoint index"})
        .wait();
    merged.merge(parse_metadata(received, fmt::format("index of rank {}", rank)));
  }
  return merged;
}

/// The hashes of the files of all ranks.
FileHashes hashes_of_ranks(const ProcessGroup& world, const FileHashes& own) {
  std::ostringstream text;
  for (const auto& [file, hash] : own) text << file << ' ' << hash << '\n';
  FileHashes all;
  for (const std::string& hashes : gather_texts(world, text.str(), "hashes of files")) {
    std::istringstream lines(hashes);
    for (std::string file, hash; lines >> file >> hash;) all[file] = hash;
  }
  return all;
}

}  // namespace

struct CheckpointSaver::Pending {
  Pending(FileSystem& files, const SaveTarget& its_target, int64_t its_iteration, int rank, Integrity integrity)
      : target(its_target),
        iteration(its_iteration),
        directory(files, target.root),
        writer(files, directory.staging_path(iteration), rank, integrity) {}

  SaveTarget target;
  int64_t iteration;
  CheckpointDirectory directory;
  CheckpointWriter writer;
  Clock::time_point start = Clock::now();
  double copying_seconds = 0, blocked_seconds = 0;  // of training: until the copies are in host memory, and in all
  std::optional<BackgroundWrite> write;             // of an asynchronous save; it ends before the writer
};

CheckpointSaver::CheckpointSaver(FileSystem& files, const CheckpointConfig& config, MessageLog log,
                                 std::function<void()> require_ownership)
    : files_(files), config_(config), log_(std::move(log)), require_ownership_(std::move(require_ownership)) {}
CheckpointSaver::~CheckpointSaver() = default;

std::vector<SavedCheckpoint> CheckpointSaver::save(int64_t iteration, const SaveTarget& target,
                                                   const ProcessGroup& world, Device& device, const Fill& fill) {
  std::vector<SavedCheckpoint> committed;
  if (auto earlier = finish(world, Wait::kYes)) committed.push_back(std::move(*earlier));
  require_ownership();
  auto save = std::make_unique<Pending>(files_, target, iteration, world.rank(), integrity());
  if (world.rank() == 0) {
    for (const std::string& line : save->directory.begin(iteration)) log_.info(line);
    if (target.add_files) target.add_files(save->directory.staging_path(iteration));
  }
  world.barrier({.site = "checkpoint directory"}).wait();
  fill(save->writer);
  int64_t bytes = sum_of_ranks(world, save->writer.estimated_bytes(), "checkpoint size");
  if (target.write_as_torch) bytes *= 2;  // the shares, and what is made of them
  if (world.rank() == 0) save->directory.require_space(bytes);
  if (!config_.async_save) {
    const auto num_files = static_cast<int>(config_.dist_ckpt_workers);
    committed.push_back(commit(*save, save->writer.write(num_files, WriteThreads::kCallerAlone), world));
    return committed;
  }
  stage(*save, device);
  log_.info(fmt::format("  scheduled an async checkpoint save at iteration {:7d} to {}", iteration, target.root));
  save->copying_seconds = save->blocked_seconds = seconds_since(save->start);
  pending_ = std::move(save);
  return committed;
}

void CheckpointSaver::stage(Pending& save, Device& device) {
  if (!staging_) staging_.emplace(device);
  const std::stop_source stop;
  save.writer.stage(staging_->take(save.writer.tensor_bytes()), stop.get_token());
  const BackgroundPriority priority{.niceness = static_cast<int>(config_.async_ckpt_cpu_priority),
                                    .io_class = static_cast<int>(config_.async_ckpt_io_priority)};
  save.write.emplace(save.writer, static_cast<int>(config_.dist_ckpt_workers), priority, stop);
}

std::optional<SavedCheckpoint> CheckpointSaver::finish(const ProcessGroup& world, Wait wait) {
  if (!pending_) return std::nullopt;
  const Clock::time_point start = Clock::now();
  // A rank whose writing has failed leaves the others alone with their collective, which ends for them as it does
  // where a rank fails in a save that is not asynchronous.
  if (wait == Wait::kNo && !pending_->write->has_failed() &&
      sum_of_ranks(world, pending_->write->is_over() ? 0 : 1, "checkpoint pending") > 0)
    return std::nullopt;
  const std::unique_ptr<Pending> save = std::move(pending_);
  const CheckpointMetadata stored = save->write->take();
  if (const std::string& problem = save->write->priority_problem(); !problem.empty() && world.rank() == 0)
    log_.warning(fmt::format("--async-ckpt-cpu-priority, --async-ckpt-io-priority: {}", problem));
  SavedCheckpoint committed = commit(*save, stored, world);
  committed.in_background = true;
  save->blocked_seconds += seconds_since(start);
  log_.info(
      fmt::format("  async save of iteration {:7d} blocked training for {:.3f} s ({:.3f} s to copy, {:.3f} s to "
                  "commit) of the {:.3f} s "
                  "that it took",
                  save->iteration, save->blocked_seconds, save->copying_seconds,
                  save->blocked_seconds - save->copying_seconds, seconds_since(save->start)));
  return committed;
}

/// Through the shares, so that no rank needs memory for what others hold of its part of the model.
void CheckpointSaver::replace_by_torch(Pending& save, const CheckpointMetadata& metadata, const ProcessGroup& world) {
  const std::string directory = save.directory.staging_path(save.iteration);
  if (world.rank() == 0) {
    metadata.require_complete();
    write_index(files_, directory, metadata);
  }
  world.barrier({.site = "checkpoint index written"}).wait();
  save.target.write_as_torch(directory);
  world.barrier({.site = "checkpoint in the form torch"}).wait();
  if (world.rank() == 0) remove_index_and_data(files_, directory, metadata);
}

SavedCheckpoint CheckpointSaver::commit(Pending& save, const CheckpointMetadata& stored, const ProcessGroup& world) {
  require_ownership();
  const bool is_first = world.rank() == 0;
  const CheckpointMetadata metadata = merged_on_first(world, stored);
  const FileHashes hashes =
      integrity() == Integrity::kSha256 ? hashes_of_ranks(world, save.writer.hashes()) : FileHashes{};
  const bool is_torch = save.target.write_as_torch != nullptr;
  if (is_torch) replace_by_torch(save, metadata, world);
  if (is_first) {
    save.directory.mark_for_removal(save.target.retention);
    if (is_torch)
      save.directory.commit_legacy(save.iteration);
    else
      save.directory.commit(save.iteration, metadata, integrity(), hashes);
  }
  world.barrier({.site = "checkpoint commit"}).wait();
  log_.info(
      fmt::format("  successfully saved checkpoint from iteration {:7d} to {}", save.iteration, save.target.root));
  SavedCheckpoint saved{.iteration = save.iteration, .removed = {}, .in_background = false};
  if (!is_first) return saved;
  saved.removed = save.directory.prune(save.target.retention);
  for (const int64_t other : saved.removed)
    log_.info(fmt::format("  successfully deleted checkpoint from iteration {:7d} at {}", other, save.target.root));
  return saved;
}

void CheckpointSaver::reserve_staging(Device& device, const Fill& fill, int64_t available) {
  CheckpointWriter writer(files_, "", 0);
  fill(writer);
  const int64_t bytes = writer.tensor_bytes();
  require_host_memory_for_staging(bytes, available);
  if (!staging_) staging_.emplace(device);
  staging_->take(bytes);
}

}  // namespace megatron
