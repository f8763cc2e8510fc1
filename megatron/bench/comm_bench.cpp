#include "megatron/bench/comm_bench.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "megatron/comm/parallel_layout.h"
#include "megatron/core/device_timer.h"

namespace megatron {
namespace {

constexpr int64_t kMostBytesInAll = int64_t{1} << 30;  // of the repeats of one size
constexpr int64_t kFewestRepeats = 3;

/// Repeats an operation on the same buffers.
class Exchange {
 public:
  Exchange(const ProcessGroup& group, const Context& ctx, CommPattern pattern, const Shape& whole, DType dtype)
      : group_(group), pattern_(pattern), whole_(constant_tensor(ctx, whole, dtype, 0)) {
    const int64_t part = whole[0] / group.size();
    if (pattern == CommPattern::kExchange)
      received_ = constant_tensor(ctx, whole, dtype, 0);
    else
      part_ = whole_.slice(0, group.rank() * part, part);
  }

  void run() {
    switch (pattern_) {
      case CommPattern::kAllReduce:
        return group_.all_reduce(whole_.view(), ReduceOp::kSum, {.site = "bench"}).wait();
      case CommPattern::kAllGather:
        return group_.all_gather(std::as_const(part_).view(), whole_.view(), {.site = "bench"}).wait();
      case CommPattern::kReduceScatter:
        return group_.reduce_scatter(std::as_const(whole_).view(), part_.view(), ReduceOp::kSum, {.site = "bench"})
            .wait();
      case CommPattern::kExchange:
        return exchange();
    }
  }

 private:
  void exchange() {
    const int n = group_.size(), next = (group_.rank() + 1) % n, before = (group_.rank() + n - 1) % n;
    const std::array messages = {send_to(next, std::as_const(whole_).view(), 0),
                                 receive_from(before, received_.view(), 0)};
    group_.batch(messages, {.site = "bench"}).wait();
  }

  const ProcessGroup& group_;
  CommPattern pattern_;
  Tensor whole_, part_, received_;
};

/// The times of the slowest rank for each call: ranks enter together and leave with the last.
std::vector<double> slowest(const ProcessGroup& group, std::vector<double> seconds) {
  const Shape shape{std::ssize(seconds)};
  group.all_reduce({seconds.data(), DType::kFloat64, shape, {1}}, ReduceOp::kMax, {.site = "bench times"}).wait();
  return seconds;
}

}  // namespace

std::string_view name_of(CommPattern pattern) {
  switch (pattern) {
    case CommPattern::kAllReduce:
      return "all-reduce";
    case CommPattern::kAllGather:
      return "all-gather";
    case CommPattern::kReduceScatter:
      return "reduce-scatter";
    case CommPattern::kExchange:
      return "exchange";
  }
  return "";
}

double CommTiming::bandwidth() const { return static_cast<double>(bytes) / timing.best; }

double CommTiming::bus_bandwidth() const {
  const double n = num_ranks;
  switch (pattern) {
    case CommPattern::kAllReduce:
      return bandwidth() * 2 * (n - 1) / n;
    case CommPattern::kAllGather:
    case CommPattern::kReduceScatter:
      return bandwidth() * (n - 1) / n;
    case CommPattern::kExchange:
      return bandwidth();
  }
  return 0;
}

std::vector<CommTiming> measure_comm(World& world, BenchDevice& bench, DType dtype, const std::vector<int64_t>& sizes,
                                     const MeasureOptions& options, Progress& progress) {
  std::vector<int> ranks(static_cast<size_t>(world.size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const ProcessGroup group = world.split("bench", {ranks}, traits_of(GroupKind::kTp)).value();
  const int64_t unit = group.size() * size_of(dtype);
  std::vector<CommTiming> timings;
  progress.begin({.title = "measuring", .total = std::ssize(kCommPatterns) * std::ssize(sizes)});
  for (const CommPattern pattern : kCommPatterns)
    for (const int64_t size : sizes) {
      progress.update(std::ssize(timings), name_of(pattern));
      const int64_t elements = std::max<int64_t>(1, (size + unit - 1) / unit) * group.size();
      const int64_t bytes = elements * size_of(dtype);
      const int64_t most = std::max<int64_t>(1, options.repeats);
      const int64_t repeats = std::clamp(kMostBytesInAll / bytes, std::min(kFewestRepeats, most), most);
      Exchange exchange(group, bench.context(), pattern, {elements}, dtype);
      const auto run = [&](int64_t) { exchange.run(); };
      seconds_of_calls(bench.device(), options.warm_ups, run);
      group.barrier({.site = "bench"}).wait();
      timings.push_back({.pattern = pattern,
                         .bytes = bytes,
                         .timing = timing_of(slowest(group, seconds_of_calls(bench.device(), repeats, run))),
                         .num_ranks = group.size()});
    }
  progress.update(std::ssize(timings), "");
  progress.end();
  return timings;
}

}  // namespace megatron
