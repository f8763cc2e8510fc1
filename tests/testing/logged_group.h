// A process group and a profiler that write down what a rank does, in its order.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "megatron/comm/process_group.h"
#include "megatron/comm/process_group_backend.h"
#include "megatron/core/profiler.h"

namespace megatron::testing {

/// Words, each followed by a blank.
using RankLog = std::string;

/// "multiply 8": a matrix product with 8 rows in the result, as the linear ops report it. Other ops are left out.
class LoggedProducts final : public Profiler {
 public:
  explicit LoggedProducts(RankLog& log) : log_(log) {}
  void begin_op(const OpPlace&, const OpNote& note, const std::source_location& where) override {
    if (note.name.empty() && note.shape && std::string_view(where.file_name()).ends_with("ops/linear.cpp"))
      log_ += fmt::format("multiply {} ", (*note.shape)[0]);
  }
  void end_op() noexcept override {}
  void begin_range(const RangeNote&) override {}
  void end_range() noexcept override {}

 private:
  RankLog& log_;
};

/// Passes collectives on tensors to the real group: "all_gather" when one is issued, "wait" when it is waited
/// for.
class LoggedBackend final : public ProcessGroupBackend {
 public:
  LoggedBackend(const ProcessGroup& real, RankLog& log) : real_(real), log_(log) {}

  Pending do_all_reduce(const OperationInfo& info, View buffer, ReduceOp reduce) override {
    return issue(info, real_.all_reduce(buffer, reduce, {.site = info.site.view()}));
  }
  Pending do_reduce_scatter(const OperationInfo& info, ConstView input, View output, ReduceOp reduce) override {
    return issue(info, real_.reduce_scatter(input, output, reduce, {.site = info.site.view()}));
  }
  Pending do_all_gather(const OperationInfo& info, ConstView input, View output) override {
    return issue(info, real_.all_gather(input, output, {.site = info.site.view()}));
  }
  /// Exchanges sections of equal size.
  Pending do_all_to_all(const OperationInfo& info, ConstView input, View output, std::span<const int64_t>,
                        std::span<const int64_t>) override {
    return issue(info, real_.all_to_all(input, output, {.site = info.site.view()}));
  }
  Pending do_broadcast(const OperationInfo&, View, int) override { throw NotSupported("[LoggedBackend] broadcast"); }
  Pending do_barrier(const OperationInfo&) override { throw NotSupported("[LoggedBackend] barrier"); }
  Pending do_point_to_point(std::span<const OperationInfo>, std::span<const PointToPoint>) override {
    throw NotSupported("[LoggedBackend] messages");
  }
  void do_copy(ConstView, View) override {}
  void abort(std::string_view reason) override { real_.abort(reason); }

 private:
  class LoggedOperation final : public PendingOperation {
   public:
    LoggedOperation(Work work, RankLog& log) : work_(std::move(work)), log_(log) {}
    void wait() override {
      log_ += "wait ";
      work_.wait();
    }
    void block() override { wait(); }

   private:
    Work work_;
    RankLog& log_;
  };
  Pending issue(const OperationInfo& info, Work work) {
    log_ += std::string(name_of(info.op)) + " ";
    return std::make_unique<LoggedOperation>(std::move(work), log_);
  }

  ProcessGroup real_;
  RankLog& log_;
};

/// Owns the group that a rank uses in place of the real one.
class LoggedGroup {
 public:
  LoggedGroup(const ProcessGroup& real, FlightRecorder& recorder, RankLog& log) {
    state_.name = "logged " + std::string(real.name());
    for (int rank = 0; rank < real.size(); ++rank) state_.ranks.push_back(real.global_rank(rank));
    state_.rank = real.rank();
    state_.timeout = real.timeout();
    state_.recorder = &recorder;
    state_.backend = std::make_unique<LoggedBackend>(real, log);
  }
  ProcessGroup group() { return ProcessGroup(state_); }

 private:
  ProcessGroupState state_;
};

}  // namespace megatron::testing
