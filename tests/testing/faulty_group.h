// A process group that does one of its collectives wrongly, to see that a test would notice.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "megatron/comm/process_group.h"
#include "megatron/comm/process_group_backend.h"

namespace megatron::testing {

/// kDropped: a rank keeps its own data as if it were alone (a gather repeats it). kScaled: the result is doubled.
enum class Fault { kDropped, kScaled };

/// Passes everything to the real group but collective number `faulty` (all_reduce, reduce_scatter and all_gather count,
/// from 0), which goes wrong on every rank in the same way. Scaling leaves maxima out: a softmax does not see by what
/// it is shifted. fp64 on the CPU.
class FaultyBackend final : public ProcessGroupBackend {
 public:
  FaultyBackend(const ProcessGroup& real, Fault fault, int64_t faulty) : real_(real), fault_(fault), faulty_(faulty) {}

  Pending do_all_reduce(const OperationInfo& info, View buffer, ReduceOp reduce) override {
    const bool matters = reduce == ReduceOp::kSum || fault_ == Fault::kDropped;
    const bool is_faulty = matters && next_is_faulty();
    if (is_faulty && fault_ == Fault::kDropped) return nullptr;
    return finish(real_.all_reduce(buffer, reduce, {.site = info.site.view()}), buffer, is_faulty);
  }
  Pending do_reduce_scatter(const OperationInfo& info, ConstView input, View output, ReduceOp reduce) override {
    const bool is_faulty = next_is_faulty();
    if (is_faulty && fault_ == Fault::kDropped) {
      const int64_t size = output.num_elements();
      std::copy_n(input.as<double>() + size * real_.rank(), size, output.as<double>());
      return nullptr;
    }
    return finish(real_.reduce_scatter(input, output, reduce, {.site = info.site.view()}), output, is_faulty);
  }
  Pending do_all_gather(const OperationInfo& info, ConstView input, View output) override {
    const bool is_faulty = next_is_faulty();
    if (is_faulty && fault_ == Fault::kDropped) {
      const int64_t size = input.num_elements();
      for (int rank = 0; rank < real_.size(); ++rank)
        std::copy_n(input.as<double>(), size, output.as<double>() + size * rank);
      return nullptr;
    }
    return finish(real_.all_gather(input, output, {.site = info.site.view()}), output, is_faulty);
  }
  Pending do_all_to_all(const OperationInfo&, ConstView, View, std::span<const int64_t>,
                        std::span<const int64_t>) override {
    throw NotSupported("[FaultyBackend] all_to_all");
  }
  Pending do_broadcast(const OperationInfo&, View, int) override { throw NotSupported("[FaultyBackend] broadcast"); }
  Pending do_barrier(const OperationInfo&) override { throw NotSupported("[FaultyBackend] barrier"); }
  Pending do_point_to_point(std::span<const OperationInfo>, std::span<const PointToPoint>) override {
    throw NotSupported("[FaultyBackend] messages");
  }
  void do_copy(ConstView, View) override {}
  void abort(std::string_view reason) override { real_.abort(reason); }

  int64_t num_collectives() const { return next_; }

 private:
  bool next_is_faulty() { return next_++ == faulty_; }
  /// Waits here: a test needs no overlap.
  Pending finish(Work work, const View& result, bool is_faulty) const {
    work.wait();
    for (int64_t i = 0; is_faulty && i < result.num_elements(); ++i) result.as<double>()[i] *= 2;
    return nullptr;
  }

  ProcessGroup real_;
  Fault fault_;
  int64_t faulty_, next_ = 0;
};

/// Owns the group that a model is given in place of the real one.
class FaultyGroup {
 public:
  FaultyGroup(const ProcessGroup& real, FlightRecorder& recorder, Fault fault, int64_t faulty) {
    state_.name = "faulty " + std::string(real.name());
    for (int rank = 0; rank < real.size(); ++rank) state_.ranks.push_back(real.global_rank(rank));
    state_.rank = real.rank();
    state_.timeout = real.timeout();
    state_.recorder = &recorder;
    auto backend = std::make_unique<FaultyBackend>(real, fault, faulty);
    backend_ = backend.get();
    state_.backend = std::move(backend);
  }
  ProcessGroup group() { return ProcessGroup(state_); }
  int64_t num_collectives() const { return backend_->num_collectives(); }

 private:
  ProcessGroupState state_;
  FaultyBackend* backend_;
};

}  // namespace megatron::testing
