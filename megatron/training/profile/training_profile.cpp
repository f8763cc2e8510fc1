#include "megatron/training/profile/training_profile.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <utility>

#include "megatron/pipeline_parallel/schedule_chart.h"
#include "megatron/training/profile/measured_schedule.h"
#include "megatron/training/profile/profile_table.h"

namespace megatron {
namespace {

ProfileRecorder::Mode mode_of(const ProfilingConfig& config) {
  if (!config.profile) return ProfileRecorder::Mode::kAnnotate;
  return config.nvtx_ranges ? ProfileRecorder::Mode::kRecordAndAnnotate : ProfileRecorder::Mode::kRecord;
}

/// "rank 3: tp 1, pp 1", the axes that have several ranks.
std::string process_name(const ProcessGroupCollection& groups) {
  std::string name = fmt::format("rank {}", groups.world.rank());
  std::string_view separator = ": ";
  const auto add = [&](std::string_view axis, const ProcessGroup& group) {
    if (group.size() > 1) name += fmt::format("{}{} {}", std::exchange(separator, ", "), axis, group.rank());
  };
  add("tp", groups.tp);
  add("pp", groups.pp);
  add("cp", groups.cp);
  add("dp", groups.dp);
  return name;
}

/// From the steady clock, which ranks on one host share, to that of the day, which all ranks have.
int64_t clock_offset_ns() {
  const auto since_epoch = [](auto time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
  };
  return since_epoch(std::chrono::system_clock::now()) - since_epoch(std::chrono::steady_clock::now());
}

}  // namespace

TrainingProfile::TrainingProfile(Trainer& trainer, FileSystem& files, MessageLog log)
    : trainer_(trainer),
      config_(trainer.config().profiling),
      flights_(trainer.groups().world.recorder()),
      files_(files),
      log_(std::move(log)),
      recorder_(trainer.device(), mode_of(config_)),
      builder_(trainer.groups().world.rank(), process_name(trainer.groups()),
               trainer.device().backend() == DeviceKind::kCuda) {
  const bool has_tool_ranges = trainer.device().backend() == DeviceKind::kCuda;
  if (config_.nvtx_ranges && !has_tool_ranges)
    log_.warning("--nvtx-ranges has no effect on the CPU. Leave it out, or train on a GPU.");
  if (config_.nvtx_ranges && has_tool_ranges && !config_.profile && is_chosen()) recorder_.start();
}

std::vector<int64_t> TrainingProfile::chosen_ranks() const {
  std::vector<int64_t> ranks = config_.profile_ranks;
  if (ranks.empty()) {
    ranks.resize(static_cast<size_t>(trainer_.groups().world.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

bool TrainingProfile::is_chosen() const {
  const std::vector<int64_t>& ranks = config_.profile_ranks;
  return ranks.empty() || std::ranges::find(ranks, trainer_.groups().world.rank()) != ranks.end();
}

void TrainingProfile::begin_step() {
  const int64_t num_done = trainer_.progress().iteration;
  if (!config_.profile || state_ != State::kWaiting || num_done < config_.profile_step_start ||
      num_done >= config_.profile_step_end)
    return;
  state_ = State::kRecording;
  first_step_ = num_done + 1;
  if (!is_chosen()) return;
  next_operation_ = flights_ ? flights_->num_operations() : 0;
  recorder_.start();
}

void TrainingProfile::end_step() {
  if (state_ != State::kRecording) return;
  ++num_steps_;
  const int64_t num_done = trainer_.progress().iteration;
  if (is_chosen()) {
    const ProfileRecorder::Records records = recorder_.take();
    builder_.add(num_done, records);
    host_times_.begin_step();
    for (const OpRecord& op : records.ops) host_times_.add(op.name, op.place.pass, op.host);
    record_operations();
  }
  if (num_done >= config_.profile_step_end) write();
}

void TrainingProfile::finish() {
  if (state_ == State::kRecording && num_steps_ > 0) write();
}

/// The flight recorder keeps the newest operations only; a gather of weights may end in the step after.
void TrainingProfile::record_operations() {
  if (!flights_) return;
  const int64_t begin = under_way_.empty() ? next_operation_ : std::min(under_way_.front(), next_operation_);
  const std::vector<OperationRecord> records = flights_->since(begin);
  const int64_t end = flights_->num_operations(), first = end - std::ssize(records);
  num_lost_ += std::max<int64_t>(0, first - next_operation_);
  std::vector<int64_t> under_way;
  for (int64_t number = first; number < end; ++number) {
    const OperationRecord& record = records[static_cast<size_t>(number - first)];
    if (number < next_operation_ && std::ranges::find(under_way_, number) == under_way_.end()) continue;
    if (record.has_ended())
      builder_.add(record);
    else
      under_way.push_back(number);
  }
  under_way_ = std::move(under_way);
  next_operation_ = end;
}

std::string TrainingProfile::part_path(int64_t rank) const {
  return fmt::format("{}.rank{}", config_.profile_trace, rank);
}

void TrainingProfile::write() {
  state_ = State::kWritten;
  recorder_.stop();
  if (is_chosen()) {
    RankTrace trace = builder_.finish();
    trace.clock_offset_ns = clock_offset_ns();
    replace_file(files_, part_path(trace.rank), to_text(trace));
  }
  const ProcessGroup& world = trainer_.groups().world;
  world.barrier({.site = "parts of the profile"}).wait();
  if (world.rank() == 0) merge();
}

/// Draws "profile.json.svg" beside "profile.json" if a pipeline ran on recorded ranks alone.
std::string TrainingProfile::draw_schedule(std::span<const RankTrace> ranks) {
  const ProcessGroupCollection& groups = trainer_.groups();
  if (groups.pp.size() == 1 || std::ssize(ranks) < groups.world.size()) return "";
  const Simulation schedule = measured_schedule(ranks);
  const std::string path = config_.profile_trace + ".svg";
  replace_file(files_, path,
               svg_of(schedule, {.title = fmt::format("Step {} as it ran", first_step_ + num_steps_ - 1),
                                 .subtitle = fmt::format("{:.1f} ms from the first forward to the last backward",
                                                         schedule.makespan),
                                 .num_chunks = static_cast<int>(trainer_.model().stage_parameters().size())}));
  return fmt::format("pipeline schedule of the last of them, drawn: {}\n", path);
}

void TrainingProfile::merge() {
  std::vector<RankTrace> ranks;
  for (int64_t rank : chosen_ranks()) {
    ranks.push_back(rank_trace_from_text(read_file(files_, part_path(rank))));
    files_.remove(part_path(rank));
  }
  write_chrome_trace(files_, config_.profile_trace, ranks);
  if (num_lost_ > 0)
    log_.warning(fmt::format("{} operations of communication of rank 0 are missing: a rank keeps {} of a step.",
                             num_lost_, World::kRecorderCapacity));
  log_.info(fmt::format("profile of steps {} to {}: {} (open it with ui.perfetto.dev)\n{}{}{}", first_step_,
                        first_step_ + num_steps_ - 1, config_.profile_trace, draw_schedule(ranks),
                        profile_table(ranks, num_steps_), host_text()));
}

/// The host times of this rank; empty on a CPU, where ops run on the host.
std::string TrainingProfile::host_text() const {
  if (trainer_.device().backend() != DeviceKind::kCuda || host_times_.empty()) return "";
  return "\nhost, the profile's own two marks of each op among it: " + host_times_.median_step().text();
}

}  // namespace megatron
