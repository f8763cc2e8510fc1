// Runs a schedule over the chunks of one rank.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "megatron/autograd/segment.h"
#include "megatron/comm/process_group.h"
#include "megatron/pipeline_parallel/action.h"

namespace megatron {

/// What the executor is given beside the schedule.
struct ExecutorOptions {
  std::vector<Chunk> chunks;                     // of this rank, in order of virtual stages
  std::vector<PayloadSpec> border_payload;       // what crosses virtual stages
  const ProcessGroup* pipeline_group = nullptr;  // null: one rank
};

/// One executor serves one step. Tapes live from the F of the first segment to the last W of a (chunk, micro-batch).
/// A parameter's gradient is ready when its last segment has run (tape.md).
class Executor {
 public:
  Executor(const Context& ctx, const ExecutorOptions& options);

  /// Forward and backward. The last virtual stage must give a payload whose first tensor is the scalar loss: its
  /// gradient is StepState::loss_seed.
  /// @throw InternalError if the schedule leaves tapes unfinished.
  void run(const Schedule& schedule);
  /// F actions only, without tapes: evaluation.
  void run_forward_only(const Schedule& schedule);

  /// Called with the payload of the last virtual stage after each of its forwards.
  std::function<void(const Payload& output, int micro_batch)> on_output;
  /// Gradients of the tensors that the first virtual stage was given by `input`, by micro-batch; for tests.
  std::map<int, Payload> input_gradients;
  /// Input of virtual stage 0; nothing: the first segment takes its data itself.
  std::function<Payload(int micro_batch)> input;

 private:
  using Place = std::pair<int, int>;             // chunk, micro-batch
  enum class Direction { kForward, kBackward };  // also the tag of its messages
  struct Run {
    std::unique_ptr<Tape> tape;
    Payload now;                      // at the border where forward stands
    std::vector<NamedTensor> inputs;  // slots only: the values need not live
    std::vector<TapeSlot> output_slots;
    Payload received, output_gradients, input_gradients;
  };
  bool is_first_stage(int chunk) const { return chunk == 0 && rank_ == 0; }
  bool is_last_stage(int chunk) const;
  size_t end_of(const Action& a) const;
  Run& run_of(const Action& a) { return runs_[{a.chunk, a.micro_batch}]; }

  void open_segments(const Schedule& schedule);
  void act(const Action& a);
  void forward(const Action& a);
  void begin_forward(const Action& a, Run& run);
  void end_forward(const Action& a, Run& run);
  void backward(const Action& a);
  void seed_outputs(const Action& a, Run& run);
  void send(Payload payload, Direction direction, const Action& a);
  void finish_sends();
  Payload receive(Direction direction);

  Context ctx_;
  const ExecutorOptions& options_;
  int rank_ = 0, num_ranks_ = 1;
  std::map<std::pair<int, size_t>, int> forwards_left_;  // by (chunk, segment)
  std::map<Place, Run> runs_;
  std::multimap<Place, Work> forward_sends_;  // a gradient that comes back proves that the send has ended
  std::vector<Work> backward_sends_;
};

}  // namespace megatron
