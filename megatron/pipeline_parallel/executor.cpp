#include "megatron/pipeline_parallel/executor.h"

#include <algorithm>

#include "megatron/kernels/elementwise.h"

namespace megatron {
namespace {
bool is_compute(ActionKind kind) { return kind <= ActionKind::kBW; }
}  // namespace

Executor::Executor(const Context& ctx, const ExecutorOptions& options) : ctx_(ctx), options_(options) {
  if (!options.pipeline_group) return;
  rank_ = options.pipeline_group->rank();
  num_ranks_ = options.pipeline_group->size();
}

bool Executor::is_last_stage(int chunk) const {
  return chunk + 1 == static_cast<int>(options_.chunks.size()) && rank_ + 1 == num_ranks_;
}
size_t Executor::end_of(const Action& a) const {
  return std::min(a.end_segment, options_.chunks[static_cast<size_t>(a.chunk)].size());
}

void Executor::run(const Schedule& schedule) {
  ctx_.mode = GradMode::kRecord;
  open_segments(schedule);
  for (const Action& a : schedule) act(a);
  finish_sends();
  std::erase_if(runs_, [](const auto& item) {
    return item.second.tape && item.second.tape->is_done() && item.second.received.empty();
  });
  require(runs_.empty(), "[executor] the schedule ended with {} unfinished tapes: a B or W is missing.", runs_.size());
}

void Executor::run_forward_only(const Schedule& schedule) {
  ctx_.mode = GradMode::kOff;
  for (const Action& a : schedule) act(a);
  finish_sends();
  runs_.clear();
}

/// A parameter closes when all segments that list it have had their last forward; so first count what will come.
void Executor::open_segments(const Schedule& schedule) {
  for (const Action& a : schedule)
    if (a.kind == ActionKind::kF)
      for (size_t s = a.first_segment; s < end_of(a); ++s) ++forwards_left_[{a.chunk, s}];
  for (const auto& [place, count] : forwards_left_)
    for (Parameter* p : options_.chunks[static_cast<size_t>(place.first)][place.second].parameters) p->open_segment();
}

void Executor::act(const Action& a) {
  Run& run = run_of(a);
  switch (a.kind) {
    case ActionKind::kF:
      forward(a);
      break;
    case ActionKind::kB:
    case ActionKind::kBW:
      backward(a);
      break;
    case ActionKind::kW:
      run.tape->backward_weight(ctx_, a.first_segment);
      break;
    case ActionKind::kSendForward:
      send(std::exchange(run.now, {}), Direction::kForward, a);
      break;
    case ActionKind::kRecvForward:
      run.received = receive(Direction::kForward);
      break;
    case ActionKind::kSendBackward:
      send(std::exchange(run.input_gradients, {}), Direction::kBackward, a);
      break;
    case ActionKind::kRecvBackward:
      run.output_gradients = receive(Direction::kBackward);
      for (auto [send, end] = forward_sends_.equal_range({a.chunk, a.micro_batch}); send != end; ++send)
        send->second.wait();
      forward_sends_.erase({a.chunk, a.micro_batch});
      break;
  }
  const bool is_over = run.tape && run.tape->is_done() && run.now.empty() && run.input_gradients.empty();
  if (is_compute(a.kind) || a.kind == ActionKind::kSendBackward)
    if (is_over && a.kind != ActionKind::kF) runs_.erase({a.chunk, a.micro_batch});
}

void Executor::begin_forward(const Action& a, Run& run) {
  if (ctx_.is_training()) run.tape = std::make_unique<Tape>(ctx_.device);
  if (is_first_stage(a.chunk))
    run.now = input ? input(a.micro_batch) : Payload{};
  else if (num_ranks_ == 1)
    run.now = std::exchange(runs_.at({a.chunk - 1, a.micro_batch}).now, {});
  else
    run.now = std::exchange(run.received, {});
  for (NamedTensor& item : run.now) {
    item.tensor.slot = {};
    if (run.tape) run.tape->watch(item.tensor);
    Tensor place;
    place.slot = item.tensor.slot;
    run.inputs.push_back({item.name, place});
  }
}

void Executor::forward(const Action& a) {
  Run& run = run_of(a);
  if (a.first_segment == 0) begin_forward(a, run);
  Context ctx = ctx_;
  ctx.tape = run.tape.get();
  for (size_t s = a.first_segment; s < end_of(a); ++s) {
    const Segment& segment = options_.chunks[static_cast<size_t>(a.chunk)][s];
    const auto function = [&segment, m = a.micro_batch](Context& c, const Payload& in) {
      return segment.forward(c, in, m);
    };
    if (run.tape) run.tape->mark_segment(run.now);
    run.now = segment.recompute ? recompute(ctx, run.now, function) : function(ctx, run.now);
    if (ctx_.is_training() && --forwards_left_[{a.chunk, s}] == 0)
      for (Parameter* p : segment.parameters) p->close_segment(ctx_);
  }
  if (end_of(a) == options_.chunks[static_cast<size_t>(a.chunk)].size()) end_forward(a, run);
}

void Executor::end_forward(const Action& a, Run& run) {
  for (const NamedTensor& item : run.now) run.output_slots.push_back(item.tensor.slot);
  if (!is_last_stage(a.chunk)) return;
  if (on_output) on_output(run.now, a.micro_batch);
  run.now.clear();
}

void Executor::seed_outputs(const Action& a, Run& run) {
  if (is_last_stage(a.chunk)) {
    Tensor seed = ctx_.empty("loss.gradient", {1}, DType::kFloat64);
    const ConstView value{&ctx_.step.loss_seed, DType::kFloat64, {1}, {1}};
    launch(ctx_, [&](auto& stream) { kernels::copy(stream, {.x = value, .y = seed.view()}); });
    run.tape->seed(ctx_, run.output_slots.at(0), std::move(seed));
    return;
  }
  for (size_t i = 0; i < run.output_gradients.size(); ++i)
    if (run.output_gradients[i].tensor.defined())
      run.tape->seed(ctx_, run.output_slots.at(i), std::move(run.output_gradients[i].tensor));
  run.output_gradients.clear();
}

void Executor::backward(const Action& a) {
  Run& run = run_of(a);
  require(run.tape != nullptr, "[executor] B of chunk {}, micro-batch {} comes before its F.", a.chunk, a.micro_batch);
  if (end_of(a) == options_.chunks[static_cast<size_t>(a.chunk)].size()) seed_outputs(a, run);
  run.tape->backward(ctx_, a.kind == ActionKind::kB ? Phase::kB : Phase::kBW, a.first_segment);
  if (a.first_segment > 0) return;
  Payload gradients;
  for (const NamedTensor& item : run.inputs)
    gradients.push_back({item.name, run.tape->take_gradient(item.tensor.slot)});
  if (is_first_stage(a.chunk)) {
    if (input) input_gradients[a.micro_batch] = std::move(gradients);
  } else if (num_ranks_ == 1) {
    runs_.at({a.chunk - 1, a.micro_batch}).output_gradients = std::move(gradients);
  } else {
    run.input_gradients = std::move(gradients);
  }
}

/// Sends do not wait for their receiver, else two neighbours that both send first would wait for each other.
void Executor::send(Payload payload, Direction direction, const Action& a) {
  const int peer = (rank_ + (direction == Direction::kForward ? 1 : num_ranks_ - 1)) % num_ranks_;
  for (size_t i = 0; i < options_.border_payload.size(); ++i) {
    Tensor& tensor = payload.at(i).tensor;
    if (!tensor.defined()) {  // a payload tensor that no gradient reached; the other side waits for one
      tensor = ctx_.empty(options_.border_payload[i].name, options_.border_payload[i].shape,
                          options_.border_payload[i].dtype);
      launch(ctx_, [&](auto& stream) { kernels::fill(stream, {.y = tensor.view(), .value = 0}); });
    }
    Work work = options_.pipeline_group->send(
        std::as_const(tensor).view(), peer, static_cast<int>(direction),
        {.site = options_.border_payload[i].name, .keep_alive = KeepAlive::of(tensor.storage())});
    if (direction == Direction::kForward)
      forward_sends_.emplace(Place{a.chunk, a.micro_batch}, std::move(work));
    else
      backward_sends_.push_back(std::move(work));
  }
}

void Executor::finish_sends() {
  for (auto& [place, work] : forward_sends_) work.wait();
  for (Work& work : backward_sends_) work.wait();
  forward_sends_.clear();
  backward_sends_.clear();
}

Payload Executor::receive(Direction direction) {
  const int peer = (rank_ + (direction == Direction::kForward ? num_ranks_ - 1 : 1)) % num_ranks_;
  Payload payload;
  for (const PayloadSpec& spec : options_.border_payload) {
    Tensor tensor = ctx_.empty(spec.name, spec.shape, spec.dtype, MemoryUse::kCommunication);
    options_.pipeline_group->recv(tensor.view(), peer, static_cast<int>(direction), {.site = spec.name}).wait();
    payload.push_back({spec.name, std::move(tensor)});
  }
  return payload;
}

}  // namespace megatron
