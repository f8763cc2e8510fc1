// Runs a schedule over the chunks of one rank.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "megatron/autograd/segment.h"
#include "megatron/comm/process_group.h"
#include "megatron/core/timers.h"
#include "megatron/pipeline_parallel/action.h"
#include "megatron/pipeline_parallel/stage_placement.h"

namespace megatron {

/// The tensors that virtual stage `stage` sends to the next one, and whose gradients it gets: the same on both sides.
using BorderPayload = std::function<std::vector<PayloadSpec>(int stage, int micro_batch)>;
/// For models whose stages all send the same.
BorderPayload same_on_all_borders(std::vector<PayloadSpec> payload);

/// The executor's input besides the schedule.
struct ExecutorOptions {
  std::vector<Chunk> chunks;  // of this rank, in order of virtual stages; as many on every rank
  BorderPayload border_payload;
  /// Tensors of the last stage's payload, scalars in fp64. Gradients are those of their sum.
  std::vector<std::string> losses = {"loss"};
  const ProcessGroup* pipeline_group = nullptr;  // null: one rank
  StageOrder stage_order = StageOrder::kLoop;    // the schedule's
  /// Level 2: forward-compute, backward-compute (W too), and this rank's waits for sends and receives:
  /// forward-send, forward-recv, backward-send, backward-recv. May be null.
  Timers* timers = nullptr;
};

/// One executor serves one step. Tapes live from the F of the first segment to the last W of a (chunk, micro-batch).
/// A parameter's gradient is ready when its last segment has run (tape.md).
class Executor {
 public:
  /// `options` must outlive the executor.
  Executor(const Context& ctx, const ExecutorOptions& options);

  /// Forward and backward. The gradient of every loss in the last virtual stage's payload is StepState::loss_seed.
  /// @throw InternalError if an action does not continue where the one before it ended, the schedule leaves tapes
  /// unfinished, or a chunk's output differs from the names of the border or the losses.
  void run(const Schedule& schedule);
  /// F actions only, without tapes: evaluation.
  void run_forward_only(const Schedule& schedule);

  /// Called with the payload of the last virtual stage after each of its forwards.
  std::function<void(const Payload& output, int micro_batch)> on_output;
  /// Gradients of the first virtual stage's `input` tensors, by micro-batch; for tests.
  std::map<int, Payload> input_gradients;
  /// Input of virtual stage 0; nothing: the first segment reads its data itself.
  std::function<Payload(int micro_batch)> input;

 private:
  using Visit = std::pair<int, int>;  // chunk, micro-batch
  enum class Direction { kForward, kBackward };
  /// Sends between two ranks over one border, in the order of both.
  struct Channel {
    int peer, tag;
    bool operator<(const Channel& other) const { return std::pair(peer, tag) < std::pair(other.peer, other.tag); }
  };
  using Works = std::vector<Work>;  // one for each tensor of a payload; those of sends keep it alive
  /// A payload that comes from another rank.
  struct Receiving {
    Payload payload;
    Works works;
  };
  struct Run {
    std::unique_ptr<Tape> tape;
    size_t next_forward = 0;          // segment where forward continues
    size_t backward_end = 0;          // segments from here on have had their backward
    Payload now;                      // at the border that forward has reached
    std::vector<NamedTensor> inputs;  // slots only: the values need not live
    std::vector<TapeSlot> output_slots;
    Receiving input, gradient;                  // posted; taken by the F or B that needs it
    Payload output_gradients, input_gradients;  // passed on this rank; to be sent or passed on
  };
  StagePlace place(int chunk) const { return {.rank = rank_, .chunk = chunk}; }
  bool is_first_stage(int chunk) const { return placement_.is_first(place(chunk)); }
  bool is_last_stage(int chunk) const { return placement_.is_last(place(chunk)); }
  /// The stage whose output flows in `direction` into the chunk, and the stage that its own output flows to.
  StagePlace source(int chunk, Direction direction) const;
  StagePlace destination(int chunk, Direction direction) const;
  Channel channel(int chunk, Direction direction, StagePlace peer) const;
  size_t end_of(const Action& a) const;
  Run& run_of(const Action& a) { return runs_[{a.chunk, a.micro_batch}]; }

  size_t num_segments(int chunk) const { return options_.chunks[static_cast<size_t>(chunk)].size(); }
  /// Takes at least one segment, where the chunk has any.
  bool goes_on(const Action& a) const { return a.first_segment < end_of(a) || num_segments(a.chunk) == 0; }
  void count_actions(const Schedule& schedule);
  void open_segments(const Schedule& schedule);
  void act(const Action& a);
  void forward(const Action& a);
  void forward_segments(const Action& a, Run& run);
  void begin_forward(const Action& a, Run& run);
  void end_forward(const Action& a, Run& run);
  void backward(const Action& a);
  void seed_outputs(const Action& a, Run& run);
  void end_backward(const Action& a, Run& run);
  Payload take_input(const Action& a, Run& run);
  void send(Payload payload, Direction direction, const Action& a);
  /// The tensors that cross the border after or before the chunk of `a`.
  std::vector<PayloadSpec> payload_behind(const Action& a) const { return border_of(a, 0); }
  std::vector<PayloadSpec> payload_before(const Action& a) const { return border_of(a, -1); }
  std::vector<PayloadSpec> border_of(const Action& a, int offset) const {
    return options_.border_payload(placement_.stage_of(place(a.chunk)) + offset, a.micro_batch);
  }
  static void require_border(const Payload& payload, const std::vector<PayloadSpec>& border, Direction direction,
                             const Action& a);
  static void finish_first(std::deque<Works>& sent);
  void finish_all_sends();
  Receiving receive(Direction direction, const Action& a);
  Payload finish(Receiving& receiving, Direction direction, const Action& a);

  Context ctx_;
  const ExecutorOptions& options_;
  int rank_ = 0;
  StagePlacement placement_;
  std::map<std::pair<int, size_t>, int> forwards_left_;  // by (chunk, segment)
  std::map<Visit, int> actions_left_;
  std::map<Visit, Run> runs_;
  std::map<Channel, std::deque<Works>> sent_;  // not known to have arrived
};

}  // namespace megatron
