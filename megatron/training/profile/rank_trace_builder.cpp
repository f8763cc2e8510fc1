#include "megatron/training/profile/rank_trace_builder.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "megatron/pipeline_parallel/action.h"
#include "megatron/training/profile/op_class.h"

namespace megatron {
namespace {

constexpr int kHostThread = 0, kScheduleThread = 1, kComputeThread = 2, kFirstGroupThread = 3;
constexpr std::string_view kStep = "step";

int64_t ns_of(OperationRecord::Time time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

bool is_compute(const RangeNote& note) {
  constexpr std::array kKinds = {ActionKind::kF, ActionKind::kB, ActionKind::kW, ActionKind::kBW};
  return note.chunk >= 0 &&
         std::ranges::find(kKinds, note.name, [](ActionKind k) { return name_of(k); }) != kKinds.end();
}

TraceEvent event_of(std::string name, int thread, const TimeSpan& span) {
  return {.name = std::move(name), .thread = thread, .begin_ns = span.begin_ns, .duration_ns = span.duration_ns()};
}

}  // namespace

RankTraceBuilder::RankTraceBuilder(int rank, std::string name, bool has_device)
    : has_device_(has_device),
      trace_{.rank = rank,
             .name = std::move(name),
             .clock_offset_ns = 0,
             .threads = {{kHostThread, "host"}, {kScheduleThread, "schedule"}, {kComputeThread, "compute"}},
             .events = {},
             .totals_ns = {}} {}

void RankTraceBuilder::add(int64_t iteration, const ProfileRecorder::Records& records) {
  for (const RangeRecord& range : records.ranges) add_range(range, iteration, records.ops);
  for (const OpRecord& op : records.ops) add_op(op);
}

/// "step 11", "F3" for micro-batch 3, "F1.3" for that of chunk 1 > 0.
void RankTraceBuilder::add_range(const RangeRecord& range, int64_t iteration, std::span<const OpRecord> ops) {
  const RangeNote& note = range.note;
  std::string name(note.name);
  if (note.name == kStep) {
    steps_.push_back(range.host);
    name += fmt::format(" {}", iteration);
  }
  if (note.chunk > 0) name += fmt::format("{}.", note.chunk);
  if (note.micro_batch >= 0) name += std::to_string(note.micro_batch);
  TraceEvent event = event_of(std::move(name), kHostThread, range.host);
  if (note.chunk >= 0)
    event.args = {
        {"action", std::string(note.name)}, {"chunk", int64_t{note.chunk}}, {"micro-batch", int64_t{note.micro_batch}}};
  if (is_compute(note)) add_action(event, range, ops);
  trace_.events.push_back(std::move(event));
}

/// From the first op of an action to its last: waiting for other ranks does not belong to it.
void RankTraceBuilder::add_action(TraceEvent event, const RangeRecord& range, std::span<const OpRecord> ops) {
  const auto host_begin = [](const OpRecord& op) { return op.host.begin_ns; };
  const auto first = std::ranges::lower_bound(ops, range.host.begin_ns, {}, host_begin);
  const auto end = std::ranges::lower_bound(ops, range.host.end_ns, {}, host_begin);
  if (first == end) return;
  event.thread = kScheduleThread;
  event.begin_ns = first->device.begin_ns;
  event.duration_ns = std::prev(end)->device.end_ns - event.begin_ns;
  trace_.events.push_back(std::move(event));
}

void RankTraceBuilder::add_op(const OpRecord& op) {
  TraceEvent event = event_of(std::string(op.name) + std::string(suffix_of(op.place.pass)), kComputeThread, op.device);
  if (!op.place.module.empty()) event.args.emplace_back("module", std::string(op.place.module));
  if (op.shape) event.args.emplace_back("shape", op.shape->to_string());
  if (has_device_) trace_.events.push_back(event_of(event.name, kHostThread, op.host));
  trace_.events.push_back(std::move(event));
  ops_.push_back(op);
}

void RankTraceBuilder::add(const OperationRecord& operation) {
  std::string name = operation.site.view().empty() ? std::string(name_of(operation.op))
                                                   : fmt::format("{} {}", name_of(operation.op), operation.site.view());
  const TimeSpan wire{ns_of(operation.started), ns_of(operation.ended)};
  TraceEvent event = event_of(std::move(name), kFirstGroupThread, wire);
  event.args = {{"group", std::string(operation.group)}, {"number", operation.sequence}, {"bytes", operation.bytes()}};
  if (operation.peer >= 0) event.args.emplace_back("peer", int64_t{operation.peer});
  if (operation.has_waited())
    waits_.push_back(event_of("wait " + event.name, kHostThread, {ns_of(operation.waited), wire.end_ns}));
  exchanges_.push_back({std::move(event), std::string(operation.group)});
}

/// The host waits for one thing at a time; a wait for several messages is cut where the first has come.
void RankTraceBuilder::add_waits() {
  std::ranges::stable_sort(waits_, {}, &TraceEvent::begin_ns);
  int64_t end = 0;
  for (TraceEvent& wait : waits_) {
    const int64_t begin = std::max(wait.begin_ns, end);
    wait.duration_ns -= begin - wait.begin_ns;
    wait.begin_ns = begin;
    if (wait.duration_ns <= 0) continue;
    end = begin + wait.duration_ns;
    trace_.events.push_back(wait);
  }
}

/// A device waits where its stream has to: between the op that the host launched before and the one after. When
/// operations begin and end on a device is known within milliseconds only, which is too coarse for this.
void RankTraceBuilder::add_device_waits() {
  std::vector<TraceEvent> device_waits;
  std::ranges::stable_sort(waits_, {}, &TraceEvent::begin_ns);
  for (const TraceEvent& wait : waits_) {
    const auto next =
        std::ranges::lower_bound(ops_, wait.begin_ns, {}, [](const OpRecord& op) { return op.host.begin_ns; });
    if (next == ops_.begin() || next == ops_.end()) continue;
    const TimeSpan gap{std::prev(next)->device.end_ns, next->device.begin_ns};
    const bool is_known = !device_waits.empty() && device_waits.back().begin_ns == gap.begin_ns;
    if (!is_known && gap.duration_ns() > 0) device_waits.push_back(event_of(wait.name, kComputeThread, gap));
  }
  waits_ = std::move(device_waits);
}

/// Operations that overlap in time get threads of their own: events of one thread must nest.
void RankTraceBuilder::add_exchanges() {
  std::ranges::stable_sort(exchanges_, {}, [](const Exchange& x) { return x.event.begin_ns; });
  std::map<std::string, std::vector<int64_t>> ends;  // of the last event on each thread of a group
  std::map<std::string, std::vector<int>> threads;
  int next_thread = kFirstGroupThread;
  for (Exchange& exchange : exchanges_) {
    std::vector<int64_t>& lanes = ends[exchange.group];
    auto lane = std::ranges::find_if(lanes, [&](int64_t end) { return end <= exchange.event.begin_ns; });
    if (lane == lanes.end()) {
      lane = lanes.insert(lanes.end(), 0);
      threads[exchange.group].push_back(next_thread);
      const auto number = lanes.size();
      trace_.threads[next_thread++] =
          number == 1 ? "comm " + exchange.group : fmt::format("comm {} ({})", exchange.group, number);
    }
    *lane = exchange.event.begin_ns + exchange.event.duration_ns;
    exchange.event.thread = threads[exchange.group][static_cast<size_t>(lane - lanes.begin())];
    trace_.events.push_back(std::move(exchange.event));
  }
}

void RankTraceBuilder::add_totals() {
  std::vector<TimeSpan> communication;
  for (const TraceEvent& wait : waits_) communication.push_back({wait.begin_ns, wait.begin_ns + wait.duration_ns});
  const StepTimes times = step_times(steps_, ops_, std::move(communication));
  for (OpClass op_class : kOpClasses) trace_.totals_ns.emplace_back(name_of(op_class), times.of(op_class));
  trace_.totals_ns.emplace_back("host gaps", times.gap_ns);
}

RankTrace RankTraceBuilder::finish() {
  if (has_device_) add_device_waits();
  add_totals();
  add_waits();
  add_exchanges();
  return std::move(trace_);
}

}  // namespace megatron
