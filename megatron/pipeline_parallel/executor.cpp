#include "megatron/pipeline_parallel/executor.h"

#include <algorithm>

#include "megatron/kernels/elementwise.h"
#include "megatron/pipeline_parallel/communication.h"

namespace megatron {
namespace {

constexpr int kTimerLevel = 2;  // of --timing-log-level

}  // namespace

BorderPayload same_on_all_borders(std::vector<PayloadSpec> payload) {
  return [payload = std::move(payload)](int, int) { return payload; };
}

Executor::Executor(const Context& ctx, const ExecutorOptions& options)
    : ctx_(ctx),
      options_(options),
      rank_(options.pipeline_group ? options.pipeline_group->rank() : 0),
      placement_(options.pipeline_group ? options.pipeline_group->size() : 1, static_cast<int>(options.chunks.size()),
                 options.stage_order) {}

StagePlace Executor::source(int chunk, Direction direction) const {
  return direction == Direction::kForward ? placement_.previous(place(chunk)) : placement_.next(place(chunk));
}
StagePlace Executor::destination(int chunk, Direction direction) const {
  return direction == Direction::kForward ? placement_.next(place(chunk)) : placement_.previous(place(chunk));
}

/// Two ranks may share several borders. The chunk on the earlier side identifies the border.
Executor::Channel Executor::channel(int chunk, Direction direction, StagePlace peer) const {
  const bool is_earlier = placement_.stage_of(place(chunk)) < placement_.stage_of(peer);
  const int border = is_earlier ? chunk : peer.chunk;
  return {.peer = peer.rank, .tag = 2 * border + (direction == Direction::kBackward ? 1 : 0)};
}

size_t Executor::end_of(const Action& a) const { return std::min(a.end_segment, num_segments(a.chunk)); }

void Executor::run(const Schedule& schedule) {
  ctx_.mode = GradMode::kRecord;
  count_actions(schedule);
  open_segments(schedule);
  for (const Action& a : schedule) act(a);
  finish_all_sends();
  std::erase_if(runs_, [](const auto& item) {
    return item.second.tape && item.second.tape->is_done() && item.second.input.payload.empty();
  });
  require(runs_.empty(), "[executor] the schedule ended with {} unfinished tapes: a B or W is missing.", runs_.size());
}

void Executor::run_forward_only(const Schedule& schedule) {
  ctx_.mode = GradMode::kOff;
  count_actions(schedule);
  for (const Action& a : schedule) act(a);
  finish_all_sends();
  runs_.clear();
}

void Executor::count_actions(const Schedule& schedule) {
  for (const Action& a : schedule) {
    require(a.chunk >= 0 && a.chunk < static_cast<int>(options_.chunks.size()),
            "[executor] the schedule names chunk {}, the rank has {}.", a.chunk, options_.chunks.size());
    ++actions_left_[{a.chunk, a.micro_batch}];
  }
}

/// A parameter closes when all segments that list it have had their last forward; so first count the forwards.
void Executor::open_segments(const Schedule& schedule) {
  for (const Action& a : schedule)
    if (a.kind == ActionKind::kF)
      for (size_t s = a.first_segment; s < end_of(a); ++s) ++forwards_left_[{a.chunk, s}];
  for (const auto& [place, count] : forwards_left_)
    for (Parameter* p : options_.chunks[static_cast<size_t>(place.first)][place.second].parameters) p->open_segment();
}

void Executor::act(const Action& a) {
  const ProfiledRange range(ctx_.device.profiler,
                            {.name = name_of(a.kind), .chunk = a.chunk, .micro_batch = a.micro_batch});
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
      require(run.tape != nullptr, "[executor] W of chunk {}, micro-batch {} comes before its F.", a.chunk,
              a.micro_batch);
      timed(options_.timers, "backward-compute", kTimerLevel,
            [&] { run.tape->backward_weight(ctx_, a.first_segment, a.end_segment); });
      break;
    case ActionKind::kSendForward:
      timed(options_.timers, "forward-send", kTimerLevel,
            [&] { send(std::exchange(run.now, {}), Direction::kForward, a); });
      break;
    case ActionKind::kRecvForward:
      run.input = receive(Direction::kForward, a);
      break;
    case ActionKind::kSendBackward:
      timed(options_.timers, "backward-send", kTimerLevel,
            [&] { send(std::exchange(run.input_gradients, {}), Direction::kBackward, a); });
      break;
    case ActionKind::kRecvBackward:
      run.gradient = receive(Direction::kBackward, a);
      break;
  }
  if (--actions_left_[{a.chunk, a.micro_batch}] > 0) return;  // for example a W without queued work
  const bool is_over = run.tape && run.tape->is_done() && run.now.empty() && run.input_gradients.empty();
  if (is_over) runs_.erase({a.chunk, a.micro_batch});
}

Payload Executor::take_input(const Action& a, Run& run) {
  if (is_first_stage(a.chunk)) return input ? input(a.micro_batch) : Payload{};
  const StagePlace from = source(a.chunk, Direction::kForward);
  if (from.rank != rank_) return finish(run.input, Direction::kForward, a);
  const auto made = runs_.find({from.chunk, a.micro_batch});
  require(made != runs_.end(), "[executor] F of chunk {}, micro-batch {} comes before that of chunk {}.", a.chunk,
          a.micro_batch, from.chunk);
  return std::exchange(made->second.now, {});
}

void Executor::begin_forward(const Action& a, Run& run) {
  if (ctx_.is_training()) {
    const Chunk& segments = options_.chunks[static_cast<size_t>(a.chunk)];
    run.tape = std::make_unique<Tape>(ctx_.device);
    if (std::ranges::any_of(segments, &Segment::offloads)) run.tape->offload_beside_kernels(segments.size());
  }
  run.now = take_input(a, run);
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
  require(a.first_segment == run.next_forward && goes_on(a),
          "[executor] F of chunk {}, micro-batch {} begins at segment {}, forward stands at {} of {}.", a.chunk,
          a.micro_batch, a.first_segment, run.next_forward, num_segments(a.chunk));
  if (a.first_segment == 0) begin_forward(a, run);
  run.next_forward = run.backward_end = end_of(a);
  timed(options_.timers, "forward-compute", kTimerLevel, [&] { forward_segments(a, run); });
  if (end_of(a) == num_segments(a.chunk)) end_forward(a, run);
}

void Executor::forward_segments(const Action& a, Run& run) {
  Context ctx = ctx_;
  ctx.tape = run.tape.get();
  ctx.place.pass = Pass::kForward;
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
}

void Executor::end_forward(const Action& a, Run& run) {
  if (!is_last_stage(a.chunk)) {
    for (const NamedTensor& item : run.now) run.output_slots.push_back(item.tensor.slot);
    return;
  }
  if (run.tape)
    for (const std::string& loss : options_.losses) run.output_slots.push_back(at(run.now, loss).slot);
  if (on_output) on_output(run.now, a.micro_batch);
  run.now.clear();
}

void Executor::seed_outputs(const Action& a, Run& run) {
  if (is_last_stage(a.chunk)) {
    const ConstView value{&ctx_.step.loss_seed, DType::kFloat64, {1}, {1}};
    for (const TapeSlot loss : run.output_slots) {
      Tensor seed = ctx_.empty("loss.gradient", {1}, DType::kFloat64);
      launch(ctx_, {.name = "copy"}, [&](auto& stream) { kernels::copy(stream, {.x = value, .y = seed.view()}); });
      run.tape->seed(ctx_, loss, std::move(seed));
    }
    return;
  }
  const StagePlace from = source(a.chunk, Direction::kBackward);
  if (from.rank != rank_) run.output_gradients = finish(run.gradient, Direction::kBackward, a);
  for (size_t i = 0; i < run.output_gradients.size(); ++i)
    if (run.output_gradients[i].tensor.defined())
      run.tape->seed(ctx_, run.output_slots.at(i), std::move(run.output_gradients[i].tensor));
  run.output_gradients.clear();
}

void Executor::backward(const Action& a) {
  Run& run = run_of(a);
  require(run.tape && run.next_forward == num_segments(a.chunk),
          "[executor] B of chunk {}, micro-batch {} comes before its F.", a.chunk, a.micro_batch);
  require(end_of(a) == run.backward_end && goes_on(a),
          "[executor] B of chunk {}, micro-batch {} takes segments {}..{}, backward stands at {}.", a.chunk,
          a.micro_batch, a.first_segment, end_of(a), run.backward_end);
  if (end_of(a) == num_segments(a.chunk)) seed_outputs(a, run);
  run.backward_end = a.first_segment;
  const Phase phase = a.kind == ActionKind::kB ? Phase::kB : Phase::kBW;
  timed(options_.timers, "backward-compute", kTimerLevel, [&] { run.tape->backward(ctx_, phase, a.first_segment); });
  if (a.first_segment == 0) end_backward(a, run);
}

void Executor::end_backward(const Action& a, Run& run) {
  Payload gradients;
  for (const NamedTensor& item : run.inputs)
    gradients.push_back({item.name, run.tape->take_gradient(item.tensor.slot)});
  if (is_first_stage(a.chunk)) {
    if (input) input_gradients[a.micro_batch] = std::move(gradients);
    return;
  }
  const StagePlace to = destination(a.chunk, Direction::kBackward);
  (to.rank == rank_ ? runs_.at({to.chunk, a.micro_batch}).output_gradients : run.input_gradients) =
      std::move(gradients);
}

/// A gradient may have another shape with as many elements (Tape::accumulate), or be missing.
void Executor::require_border(const Payload& payload, const std::vector<PayloadSpec>& border, Direction direction,
                              const Action& a) {
  const auto fits = [&](const NamedTensor& item, const PayloadSpec& spec) {
    const Tensor& x = item.tensor;
    if (direction == Direction::kBackward && !x.defined()) return item.name == spec.name;
    return x.defined() && item.name == spec.name && x.dtype() == spec.dtype &&
           (direction == Direction::kForward ? x.shape() == spec.shape : x.num_elements() == spec.shape.num_elements());
  };
  if (std::equal(payload.begin(), payload.end(), border.begin(), border.end(), fits)) return;
  std::string given, named;
  for (const auto& [name, x] : payload) given += fmt::format(" {} {} {}", name, x.dtype(), x.shape());
  for (const auto& [name, shape, dtype] : border) named += fmt::format(" {} {} {}", name, dtype, shape);
  throw InternalError(fmt::format(
      "[executor] chunk {} gives its neighbour{}; the border names{}. Both need the same tensors in the same order.",
      a.chunk, given, named));
}

/// Sends do not wait for their receiver, or two neighbours that both send first would deadlock. They wait
/// for the payload before on the same border, so that it can be freed: simulate() models that.
void Executor::send(Payload payload, Direction direction, const Action& a) {
  const std::vector<PayloadSpec> border = direction == Direction::kForward ? payload_behind(a) : payload_before(a);
  require_border(payload, border, direction, a);
  const Channel to = channel(a.chunk, direction, destination(a.chunk, direction));
  std::deque<Works>& sent = sent_[to];
  while (sent.size() >= kMessagesUnderWay) finish_first(sent);
  sent.emplace_back();
  for (size_t i = 0; i < border.size(); ++i) {
    Tensor& tensor = payload[i].tensor;
    if (!tensor.defined()) {  // a payload tensor that no gradient reached; the other side waits for one
      tensor = ctx_.empty(border[i].name, border[i].shape, border[i].dtype);
      launch(ctx_, {.name = "fill"}, [&](auto& stream) { kernels::fill(stream, {.y = tensor.view(), .value = 0}); });
    }
    sent.back().push_back(
        options_.pipeline_group->send(std::as_const(tensor).view(), to.peer, to.tag,
                                      {.site = border[i].name, .keep_alive = KeepAlive::of(tensor.storage())}));
  }
}

void Executor::finish_first(std::deque<Works>& sent) {
  for (Work& work : sent.front()) work.wait();
  sent.pop_front();
}

void Executor::finish_all_sends() {
  for (auto& [channel, sent] : sent_)
    while (!sent.empty()) finish_first(sent);
}

Executor::Receiving Executor::receive(Direction direction, const Action& a) {
  const Channel from = channel(a.chunk, direction, source(a.chunk, direction));
  Receiving receiving;
  for (const PayloadSpec& spec : direction == Direction::kForward ? payload_before(a) : payload_behind(a)) {
    Tensor tensor = ctx_.empty(spec.name, spec.shape, spec.dtype, MemoryUse::kCommunication);
    receiving.works.push_back(options_.pipeline_group->recv(tensor.view(), from.peer, from.tag, {.site = spec.name}));
    receiving.payload.push_back({spec.name, std::move(tensor)});
  }
  return receiving;
}

Payload Executor::finish(Receiving& receiving, Direction direction, const Action& a) {
  require(!receiving.payload.empty(), "[executor] {} of chunk {}, micro-batch {} comes before its receive.",
          name_of(a.kind), a.chunk, a.micro_batch);
  timed(options_.timers, direction == Direction::kForward ? "forward-recv" : "backward-recv", kTimerLevel, [&] {
    for (Work& work : receiving.works) work.wait();
  });
  receiving.works.clear();
  return std::exchange(receiving.payload, {});
}

}  // namespace megatron
