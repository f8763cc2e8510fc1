// A step tells a profile which op runs where, and which phase of the step it is.
#pragma once

#include <cstdint>
#include <source_location>
#include <string_view>

#include "megatron/core/shape.h"

namespace megatron {

/// Which part of a step an op belongs to.
enum class Pass : uint8_t { kNone, kForward, kRecompute, kInputGradient, kWeightGradient };

/// The place of an op in the model.
struct OpPlace {
  std::string_view
      module;  // "decoder.layers.3.mlp.linear_fc1", layers numbered globally; must live as long as the model
  Pass pass = Pass::kNone;
};

/// The facts that the front of an op states. Nothing is done with them if no profiler listens.
struct OpNote {
  std::string_view name = {};    // static; empty: the stem of the source file that launches the op
  const Shape* shape = nullptr;  // what the op works on; read at once
};

/// A phase of a step, such as an action of a pipeline schedule.
struct RangeNote {
  std::string_view name;             // static
  int chunk = -1, micro_batch = -1;  // -1: of none
};

/// Told of ops and ranges by the thread of one rank as it comes to them. Ranges nest; ops lie in ranges, and not in
/// each other. Called on no meta device.
class Profiler {
 public:
  virtual ~Profiler() = default;
  virtual void begin_op(const OpPlace& place, const OpNote& note, const std::source_location& where) = 0;
  virtual void end_op() noexcept = 0;
  virtual void begin_range(const RangeNote& note) = 0;
  virtual void end_range() noexcept = 0;
};

/// From begin_op to end_op; null: nothing.
class ProfiledOp {
 public:
  ProfiledOp(Profiler* profiler, const OpPlace& place, const OpNote& note, const std::source_location& where)
      : profiler_(profiler) {
    if (profiler_) [[unlikely]]
      profiler_->begin_op(place, note, where);
  }
  ProfiledOp(const ProfiledOp&) = delete;
  ProfiledOp& operator=(const ProfiledOp&) = delete;
  ~ProfiledOp() {
    if (profiler_) [[unlikely]]
      profiler_->end_op();
  }

 private:
  Profiler* profiler_;
};

/// From begin_range to end_range; null: nothing.
class ProfiledRange {
 public:
  ProfiledRange(Profiler* profiler, const RangeNote& note) : profiler_(profiler) {
    if (profiler_) profiler_->begin_range(note);
  }
  ProfiledRange(const ProfiledRange&) = delete;
  ProfiledRange& operator=(const ProfiledRange&) = delete;
  ~ProfiledRange() {
    if (profiler_) profiler_->end_range();
  }

 private:
  Profiler* profiler_;
};

}  // namespace megatron
