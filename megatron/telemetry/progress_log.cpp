#include "megatron/telemetry/progress_log.h"

#include <fmt/core.h>

#include <cstdlib>
#include <sstream>
#include <utility>
#include <vector>

#include "megatron/telemetry/line_file.h"

namespace megatron {
namespace {

constexpr double kTera = 1e12;

std::vector<std::string> split_at_tabs(const std::string& line) {
  std::vector<std::string> fields;
  std::istringstream in(line);
  for (std::string field; std::getline(in, field, '\t');) fields.push_back(field);
  return fields;
}

/// The number after the colon of "# GPUs: 8"; 0 without one.
double number_after_colon(const std::string& field) {
  const auto colon = field.find(": ");
  return colon == std::string::npos ? 0.0 : std::strtod(field.c_str() + colon + 2, nullptr);
}

double throughput(double flops, double seconds, int world_size) {
  return seconds > 0.0 ? flops / (seconds * kTera * world_size) : 0.0;
}

}  // namespace

ProgressLog::ProgressLog(FileSystem& files, std::string_view directory, std::string job_id, int world_size)
    : files_(files), path_(join_path(directory, "progress.txt")), job_id_(std::move(job_id)), world_size_(world_size) {
  files_.create_directories(parent_path(path_));
}

void ProgressLog::job_started(WallTime now) { append(now, "Starting job"); }

void ProgressLog::checkpoint_saved(WallTime now, const CheckpointProgress& progress) {
  append_save(now, "Saved checkpoint", progress);
}

void ProgressLog::async_save_started(WallTime now, const CheckpointProgress& progress) {
  append_save(now, "Saving async checkpoint", progress);
}

void ProgressLog::async_save_finished(WallTime now, std::int64_t iteration) {
  append(now, fmt::format("Saved async checkpoint\tIteration: {}", iteration));
}

void ProgressLog::append_save(WallTime now, std::string_view heading, const CheckpointProgress& progress) {
  const double job = throughput(progress.flops - progress.flops_at_job_start, progress.job_seconds, world_size_);
  double cumulative = job;
  const std::string text = files_.exists(path_) ? read_file(files_, path_) : "";
  if (const auto start = find_job_start(text, world_size_))
    cumulative = throughput(progress.flops - start->flops, unix_seconds(now) - unix_seconds(start->time), world_size_);
  append(now, fmt::format("{}\tIteration: {}\tJob throughput: {:.1f} TFLOP/s/GPU\tCumulative throughput: "
                          "{:.1f} TFLOP/s/GPU\tFloating-point operations: {:.2e}\tTokens (in billions): {:.2f}",
                          heading, progress.iteration, job, cumulative, progress.flops, progress.tokens / 1e9));
}

void ProgressLog::checkpoint_deleted(WallTime now, std::int64_t iteration) {
  append(now, fmt::format("Deleted checkpoint\tIteration: {}", iteration));
}

void ProgressLog::append(WallTime now, std::string_view message) {
  const std::string line =
      fmt::format("{}\tJob ID: {}\t# GPUs: {}\t{}\n", date_time_text(now), job_id_, world_size_, message);
  const auto file = open_line_file(files_, path_);
  file->append(std::as_bytes(std::span(line)));
  file->close();
}

std::optional<JobStart> find_job_start(std::string_view text, int world_size) {
  std::optional<JobStart> start;
  double saved_flops = 0.0;
  std::istringstream in{std::string(text)};
  for (std::string line; std::getline(in, line);) {
    const std::vector<std::string> fields = split_at_tabs(line);
    const std::optional<WallTime> time = parse_date_time(line);
    if (!time || fields.size() < 4) continue;
    const bool is_save = fields[3] == "Saved checkpoint" || fields[3] == "Saving async checkpoint";
    if (is_save && fields.size() >= 8) saved_flops = number_after_colon(fields[7]);
    if (static_cast<int>(number_after_colon(fields[2])) != world_size)
      start.reset();
    else if (fields[3] == "Starting job" && !start)
      start = JobStart{.time = *time, .flops = saved_flops};
  }
  return start;
}

}  // namespace megatron
