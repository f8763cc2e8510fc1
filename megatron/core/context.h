// Everything that an op needs and that is not its operand. Passed first to every op; nothing is global.
#pragma once

#include <source_location>
#include <string_view>
#include <utility>

#include "megatron/core/device.h"
#include "megatron/core/offload_choice.h"
#include "megatron/core/profiler.h"
#include "megatron/core/random.h"
#include "megatron/core/step_state.h"
#include "megatron/core/tensor.h"

namespace megatron {

class Tape;
struct RecomputeRun;

/// kOff: nothing is recorded or counted (evaluation). kRecord: forward of a training step. kCountUses: the first run of
/// a recomputed function, where nothing is recorded and uses of parameters are counted. kReplay: its second run,
/// recorded on an inner tape, uses not counted again.
enum class GradMode { kOff, kRecord, kCountUses, kReplay };
/// The memory that holds values until backward needs them: the device's or the host's.
enum class SavePolicy { kKeep, kOffload };

/// Cheap to copy: a change of mode, key or tape is a changed copy.
struct Context {
  Device& device;
  StepState& step;  // in device memory; fronts pass its address to kernels and do not read it
  RandomKey key;
  Tape* tape = nullptr;
  GradMode mode = GradMode::kOff;
  SavePolicy save = SavePolicy::kKeep;
  int64_t min_offloaded_elements = 0;  // smaller values stay on the device
  RecomputeRun* run = nullptr;         // set inside recompute()
  OpPlace place;                       // for profiles alone

  bool is_training() const { return mode != GradMode::kOff; }
  /// False where recompute runs a function for the second time: counters and other effects of the first run must not
  /// happen again. Values that must be the same in both runs: compute_once() in autograd/recompute_run.h.
  bool is_first_run() const { return mode != GradMode::kReplay; }
  Tensor empty(std::string_view name, const Shape& shape, DType dtype, MemoryUse use = MemoryUse::kActivations) const {
    return Tensor(Storage(device.arena, name, shape.num_elements() * size_of(dtype), use), dtype, shape);
  }
  /// Memory for values that kernels seldom touch: in the host, page-locked.
  Tensor empty_on_host(std::string_view name, const Shape& shape, DType dtype, MemoryUse use) const {
    return Tensor(Storage(device.pinned, name, shape.num_elements() * size_of(dtype), use), dtype, shape);
  }
  /// With dimension 0 bounded by `count` if that is defined.
  Tensor empty_bounded(std::string_view name, const Shape& shape, DType dtype, const Storage& count) const {
    const int64_t bytes = shape.num_elements() * size_of(dtype);
    return Tensor(Storage(device.arena, name, bytes, MemoryUse::kActivations), dtype, shape, count);
  }
  Tensor empty_like(std::string_view name, const Tensor& x) const {
    return empty_bounded(name, x.shape(), x.dtype(), x.count());
  }
  /// Memory for the inside of one kernel; undefined if none is needed.
  Tensor workspace(std::string_view name, int64_t bytes) const {
    return bytes == 0 ? Tensor() : empty(name, {bytes}, DType::kUInt8, MemoryUse::kWorkspace);
  }
};

/// Until its end, ops with this context run at another place.
class PlaceScope {
 public:
  PlaceScope(Context& ctx, const OpPlace& place) : ctx_(ctx), outer_(std::exchange(ctx.place, place)) {}
  PlaceScope(Context& ctx, std::string_view module) : PlaceScope(ctx, OpPlace{module, ctx.place.pass}) {}
  PlaceScope(const PlaceScope&) = delete;
  PlaceScope& operator=(const PlaceScope&) = delete;
  ~PlaceScope() { ctx_.place = outer_; }

 private:
  Context& ctx_;
  OpPlace outer_;
};

/// Until its end, ops with this context save values in host memory, if the choice says so.
class OffloadScope {
 public:
  OffloadScope(Context& ctx, const OffloadChoice& choice)
      : ctx_(ctx), save_(ctx.save), min_elements_(ctx.min_offloaded_elements) {
    if (!choice.offloads) return;
    ctx.save = SavePolicy::kOffload;
    ctx.min_offloaded_elements = choice.min_elements;
  }
  OffloadScope(const OffloadScope&) = delete;
  OffloadScope& operator=(const OffloadScope&) = delete;
  ~OffloadScope() {
    ctx_.save = save_;
    ctx_.min_offloaded_elements = min_elements_;
  }

 private:
  Context& ctx_;
  SavePolicy save_;
  int64_t min_elements_;
};

/// Calls `function` with the stream of the backend, which chooses the overload: for questions such as the size of a
/// workspace, which have the same answer on meta as on the device that it stands for.
template <class Function>
auto with_stream(const Device& device, Function&& function) {
  if constexpr (kHasCuda)
    if (device.backend() == DeviceKind::kCuda) return function(device.cuda_stream());
  return function(device.cpu_stream());
}

/// The one place where meta parts from the real devices: the front has run, the kernel is left out.
/// `kernel` is called with the device's stream, which chooses the kernel's overload; a missing one does not compile.
template <class Kernel>
void launch(const Context& ctx, const OpNote& note, Kernel&& kernel,
            const std::source_location& where = std::source_location::current()) {
  if (ctx.device.is_meta()) return;
  const ArenaAccess access(ctx.device.arena);
  const ProfiledOp op(ctx.device.profiler, ctx.place, note, where);
  with_stream(ctx.device, kernel);
}
/// An op that a profile names after the source file that launches it.
template <class Kernel>
void launch(const Context& ctx, Kernel&& kernel, const std::source_location& where = std::source_location::current()) {
  launch(ctx, OpNote{}, kernel, where);
}

}  // namespace megatron
