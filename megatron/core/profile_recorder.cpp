#include "megatron/core/profile_recorder.h"

#include <chrono>
#include <string>
#include <utility>

namespace megatron {
namespace {

/// Room for a step of a small model, so that little is allocated while one runs.
constexpr size_t kInitialCapacity = 4096;

std::string tool_label(std::string_view name, std::string_view module) {
  return module.empty() ? std::string(name) : std::string(module) + " " + std::string(name);
}

}  // namespace

int64_t steady_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

std::string_view name_of_op(const OpNote& note, const std::source_location& where) {
  if (!note.name.empty()) return note.name;
  std::string_view path = where.file_name();
  path.remove_prefix(path.rfind('/') + 1);
  return path.substr(0, path.rfind('.'));
}

ProfileRecorder::ProfileRecorder(Device& device, Mode mode)
    : device_(device),
      tracer_(device.make_tracer()),
      records_ops_(mode != Mode::kAnnotate),
      annotates_(mode != Mode::kRecord && tracer_) {}

ProfileRecorder::~ProfileRecorder() { stop(); }

void ProfileRecorder::start() {
  device_.profiler = this;
  records_.ops.reserve(kInitialCapacity);
  records_.ranges.reserve(kInitialCapacity);
}

void ProfileRecorder::stop() {
  if (device_.profiler == this) device_.profiler = nullptr;
}

void ProfileRecorder::begin_op(const OpPlace& place, const OpNote& note, const std::source_location& where) {
  const std::string_view name = name_of_op(note, where);
  if (annotates_) tracer_->push_range(tool_label(name, place.module));
  if (!records_ops_) return;
  OpRecord& op = records_.ops.emplace_back();
  op.name = name;
  op.place = place;
  if (note.shape) op.shape = *note.shape;
  op.host.begin_ns = steady_clock_ns();
  if (tracer_) tracer_->mark();
}

void ProfileRecorder::end_op() noexcept {
  if (records_ops_) {
    if (tracer_) tracer_->mark();
    records_.ops.back().host.end_ns = steady_clock_ns();
  }
  if (annotates_) tracer_->pop_range();
}

void ProfileRecorder::begin_range(const RangeNote& note) {
  if (annotates_) tracer_->push_range(note.name);
  if (!records_ops_) return;
  open_ranges_.push_back(records_.ranges.size());
  records_.ranges.push_back({.note = note, .host = {.begin_ns = steady_clock_ns()}});
}

void ProfileRecorder::end_range() noexcept {
  if (records_ops_) {
    records_.ranges[open_ranges_.back()].host.end_ns = steady_clock_ns();
    open_ranges_.pop_back();
  }
  if (annotates_) tracer_->pop_range();
}

ProfileRecorder::Records ProfileRecorder::take() {
  const std::vector<int64_t> marks = tracer_ ? tracer_->read_marks() : std::vector<int64_t>();
  for (size_t i = 0; i < records_.ops.size(); ++i) {
    OpRecord& op = records_.ops[i];
    op.device = tracer_ ? TimeSpan{marks.at(2 * i), marks.at(2 * i + 1)} : op.host;
  }
  Records next;
  next.ops.reserve(records_.ops.size());
  next.ranges.reserve(records_.ranges.size());
  return std::exchange(records_, std::move(next));
}

}  // namespace megatron
