#include "megatron/comm/process_group.h"

#include <cstring>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/comm/flight_recorder.h"
#include "megatron/comm/process_group_backend.h"

namespace megatron {
namespace {

/// Throws with the call and the group in front. Only what is refused is formatted: checks cost nothing on the way.
template <class E, class... Args>
[[noreturn]] void refuse(CommOp op, const ProcessGroup& group, fmt::format_string<Args...> format, Args&&... args) {
  throw E(fmt::format("[{} on {}] {}", name_of(op), group.name(), fmt::format(format, std::forward<Args>(args)...)));
}

void check_view(CommOp op, const ProcessGroup& group, std::string_view which, const ConstView& view) {
  if (view.num_elements() > 0 && !view.is_contiguous())
    refuse<ShapeError>(op, group, "{} {} with strides {} is not contiguous. Copy it first.", which,
                       view.shape.to_string(), view.strides.to_string());
}

void check_same_dtype(CommOp op, const ProcessGroup& group, const ConstView& input, const View& output) {
  if (input.dtype != output.dtype)
    refuse<DtypeError>(op, group, "input is {} and output {}. Convert one of them.", name_of(input.dtype),
                       name_of(output.dtype));
}

void check_reducible(CommOp op, const ProcessGroup& group, DType dtype, ReduceOp reduce) {
  const bool integer = dtype == DType::kInt64 || dtype == DType::kInt32 || dtype == DType::kUInt8;
  if (!is_floating(dtype) && !integer)
    refuse<DtypeError>(op, group, "{} cannot be reduced. Reduce in bfloat16 or float32.", name_of(dtype));
  if (integer && reduce == ReduceOp::kAverage)
    refuse<DtypeError>(op, group, "the average of {} is not defined. Use kSum.", name_of(dtype));
}

void check_peer(CommOp op, const ProcessGroup& group, int peer) {
  if (peer < 0 || peer >= group.size())
    refuse<ConfigError>(op, group, "rank {} is not in the group of {} ranks.", peer, group.size());
}

/// `whole` holds one section for each rank, of the size of `section`.
void check_sections(CommOp op, const ProcessGroup& group, const ConstView& whole, const ConstView& section) {
  if (whole.num_elements() != section.num_elements() * group.size())
    refuse<ShapeError>(op, group, "{} elements {} are not {} sections, one for each rank, of {} elements {}.",
                       whole.num_elements(), whole.shape.to_string(), group.size(), section.num_elements(),
                       section.shape.to_string());
}

constexpr int64_t kNotInPlace = -1;

/// Buffers are apart, or `inner` is the section of `outer` that begins at `in_place_bytes`. Those of meta are nowhere.
void check_overlap(CommOp op, const ProcessGroup& group, const ConstView& outer, const ConstView& inner,
                   int64_t in_place_bytes) {
  if (!outer.defined() || !inner.defined()) return;
  const auto first = reinterpret_cast<uintptr_t>(outer.data), second = reinterpret_cast<uintptr_t>(inner.data);
  const auto bytes = [](const ConstView& view) {
    return static_cast<uintptr_t>(view.num_elements() * size_of(view.dtype));
  };
  if (first + bytes(outer) <= second || second + bytes(inner) <= first) return;
  if (in_place_bytes == kNotInPlace) refuse<ShapeError>(op, group, "input and output overlap.");
  if (second != first + static_cast<uintptr_t>(in_place_bytes))
    refuse<ShapeError>(op, group, "input and output overlap elsewhere than in this rank's own section.");
}

void copy(ProcessGroupState* state, const ConstView& input, const View& output) {
  if (state && state->backend) return state->backend->do_copy(input, output);
  if (output.data && output.data != input.data)
    std::memcpy(output.data, input.data, static_cast<size_t>(input.num_elements() * size_of(input.dtype)));
}

/// Numbers and records an operation.
OperationInfo begin(ProcessGroupState& state, CommOp op, DType dtype, int64_t num_elements, int peer,
                    std::string_view site) {
  const bool message = op == CommOp::kSend || op == CommOp::kReceive;
  OperationInfo info{.op = op,
                     .sequence = message ? state.num_messages++ : state.num_collectives++,
                     .site = Site(site),
                     .timeout = state.timeout,
                     .recorder = state.recorder};
  info.record = state.recorder->add({.group = state.name,
                                     .op = op,
                                     .sequence = info.sequence,
                                     .site = info.site,
                                     .dtype = dtype,
                                     .num_elements = num_elements,
                                     .peer = peer,
                                     .enqueued = std::chrono::steady_clock::now(),
                                     .waited = {},
                                     .started = {},
                                     .ended = {}});
  return info;
}

/// Elements for each rank of counts given in rows of dimension 0 of `view`.
std::vector<int64_t> count_elements(const ProcessGroup& group, std::string_view which, const ConstView& view,
                                    std::span<const int64_t> rows) {
  constexpr CommOp op = CommOp::kAllToAll;
  if (rows.size() != static_cast<size_t>(group.size()))
    refuse<ShapeError>(op, group, "{} row counts of {} for {} ranks.", rows.size(), which, group.size());
  if (view.shape.rank() == 0) refuse<ShapeError>(op, group, "{} is a scalar and has no rows.", which);
  int64_t sum = 0, row = 1;
  for (int64_t count : rows) {
    if (count < 0) refuse<ShapeError>(op, group, "a row count of {} is {}.", which, count);
    sum += count;
  }
  if (sum != view.shape[0])
    refuse<ShapeError>(op, group, "row counts of {} add up to {}, its dimension 0 is {}.", which, sum, view.shape[0]);
  for (int dim = 1; dim < view.shape.rank(); ++dim) row *= view.shape[dim];
  std::vector<int64_t> counts(rows.begin(), rows.end());
  for (int64_t& count : counts) count *= row;
  return counts;
}

Work start_all_to_all(const ProcessGroup& group, ProcessGroupState* state, const ConstView& input, const View& output,
                      std::span<const int64_t> send_counts, std::span<const int64_t> receive_counts,
                      CommOptions options) {
  check_view(CommOp::kAllToAll, group, "input", input);
  check_view(CommOp::kAllToAll, group, "output", output);
  check_same_dtype(CommOp::kAllToAll, group, input, output);
  check_overlap(CommOp::kAllToAll, group, input, output, group.size() == 1 ? 0 : kNotInPlace);
  if (group.size() == 1) return copy(state, input, output), Work();
  const auto info = begin(*state, CommOp::kAllToAll, input.dtype, input.num_elements(), -1, options.site);
  return Work(state->backend->do_all_to_all(info, input, output, send_counts, receive_counts),
              std::move(options.keep_alive));
}

}  // namespace

int ProcessGroup::size() const { return state_ ? static_cast<int>(state_->ranks.size()) : 1; }
int ProcessGroup::rank() const { return state_ ? state_->rank : 0; }
std::string_view ProcessGroup::name() const { return state_ ? std::string_view(state_->name) : "single"; }
GroupTraits ProcessGroup::traits() const { return state_ ? state_->traits : GroupTraits{}; }
const FlightRecorder* ProcessGroup::recorder() const { return state_ ? state_->recorder : nullptr; }
int ProcessGroup::global_rank(int group_rank) const {
  return state_ ? state_->ranks.at(static_cast<size_t>(group_rank)) : group_rank;
}
std::chrono::milliseconds ProcessGroup::timeout() const {
  return state_ ? state_->timeout : std::chrono::milliseconds::max();
}
void ProcessGroup::set_timeout(std::chrono::milliseconds timeout) const {
  if (state_) state_->timeout = timeout;
}

Work ProcessGroup::all_reduce(View buffer, ReduceOp reduce, CommOptions options) const {
  constexpr CommOp op = CommOp::kAllReduce;
  check_view(op, *this, "buffer", buffer);
  check_reducible(op, *this, buffer.dtype, reduce);
  if (size() == 1) return Work();
  const auto info = begin(*state_, op, buffer.dtype, buffer.num_elements(), -1, options.site);
  return Work(state_->backend->do_all_reduce(info, buffer, reduce), std::move(options.keep_alive));
}

Work ProcessGroup::reduce_scatter(ConstView input, View output, ReduceOp reduce, CommOptions options) const {
  constexpr CommOp op = CommOp::kReduceScatter;
  check_view(op, *this, "input", input);
  check_view(op, *this, "output", output);
  check_same_dtype(op, *this, input, output);
  check_reducible(op, *this, input.dtype, reduce);
  check_sections(op, *this, input, output);
  check_overlap(op, *this, input, output, rank() * output.num_elements() * size_of(output.dtype));
  if (size() == 1) return copy(state_, input, output), Work();
  const auto info = begin(*state_, op, input.dtype, input.num_elements(), -1, options.site);
  return Work(state_->backend->do_reduce_scatter(info, input, output, reduce), std::move(options.keep_alive));
}

Work ProcessGroup::all_gather(ConstView input, View output, CommOptions options) const {
  constexpr CommOp op = CommOp::kAllGather;
  check_view(op, *this, "input", input);
  check_view(op, *this, "output", output);
  check_same_dtype(op, *this, input, output);
  check_sections(op, *this, output, input);
  check_overlap(op, *this, output, input, rank() * input.num_elements() * size_of(input.dtype));
  if (size() == 1) return copy(state_, input, output), Work();
  const auto info = begin(*state_, op, input.dtype, input.num_elements(), -1, options.site);
  return Work(state_->backend->do_all_gather(info, input, output), std::move(options.keep_alive));
}

Work ProcessGroup::all_to_all(ConstView input, View output, CommOptions options) const {
  constexpr CommOp op = CommOp::kAllToAll;
  const int64_t total = input.num_elements();
  if (total != output.num_elements())
    refuse<ShapeError>(op, *this, "input has {} elements {}, output {} {}.", total, input.shape.to_string(),
                       output.num_elements(), output.shape.to_string());
  if (total % size() != 0)
    refuse<ShapeError>(op, *this, "{} elements {} do not divide by {} ranks. Give row counts for each rank.", total,
                       input.shape.to_string(), size());
  const std::vector<int64_t> counts(static_cast<size_t>(size()), total / size());
  return start_all_to_all(*this, state_, input, output, counts, counts, std::move(options));
}

Work ProcessGroup::all_to_all(ConstView input, View output, std::span<const int64_t> send_rows,
                              std::span<const int64_t> receive_rows, CommOptions options) const {
  const auto send_counts = count_elements(*this, "input", input, send_rows);
  const auto receive_counts = count_elements(*this, "output", output, receive_rows);
  const auto own = static_cast<size_t>(rank());
  if (send_counts[own] != receive_counts[own])
    refuse<ShapeError>(CommOp::kAllToAll, *this, "sends {} elements to itself and receives {}.", send_counts[own],
                       receive_counts[own]);
  return start_all_to_all(*this, state_, input, output, send_counts, receive_counts, std::move(options));
}

Work ProcessGroup::broadcast(View buffer, int root, CommOptions options) const {
  constexpr CommOp op = CommOp::kBroadcast;
  check_view(op, *this, "buffer", buffer);
  check_peer(op, *this, root);
  if (size() == 1) return Work();
  const auto info = begin(*state_, op, buffer.dtype, buffer.num_elements(), root, options.site);
  return Work(state_->backend->do_broadcast(info, buffer, root), std::move(options.keep_alive));
}

Work ProcessGroup::barrier(CommOptions options) const {
  if (size() == 1) return Work();
  const auto info = begin(*state_, CommOp::kBarrier, DType::kUInt8, 0, -1, options.site);
  return Work(state_->backend->do_barrier(info), std::move(options.keep_alive));
}

Work ProcessGroup::send(ConstView input, int peer, int tag, CommOptions options) const {
  const PointToPoint message = send_to(peer, input, tag);
  return batch({&message, 1}, std::move(options));
}

Work ProcessGroup::recv(View output, int peer, int tag, CommOptions options) const {
  const PointToPoint message = receive_from(peer, output, tag);
  return batch({&message, 1}, std::move(options));
}

Work ProcessGroup::batch(std::span<const PointToPoint> messages, CommOptions options) const {
  for (const PointToPoint& message : messages) {
    const bool sends = message.op == CommOp::kSend;
    check_peer(message.op, *this, message.peer);
    if (message.peer == rank())
      refuse<ConfigError>(message.op, *this, "rank {} is this rank itself. Use the buffer directly.", message.peer);
    check_view(message.op, *this, "buffer", sends ? message.input : message.output);
  }
  if (messages.empty()) return Work();
  std::vector<OperationInfo> infos;
  for (const PointToPoint& message : messages) {
    const ConstView buffer = message.op == CommOp::kSend ? message.input : message.output;
    infos.push_back(begin(*state_, message.op, buffer.dtype, buffer.num_elements(), message.peer, options.site));
  }
  return Work(state_->backend->do_point_to_point(infos, messages), std::move(options.keep_alive));
}

void ProcessGroup::abort(std::string_view reason) const {
  if (state_ && state_->backend) state_->backend->abort(reason);
}

}  // namespace megatron
