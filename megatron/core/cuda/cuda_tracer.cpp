#include "megatron/core/cuda/cuda_tracer.h"

#include <nvtx3/nvToolsExt.h>

#include <chrono>
#include <limits>
#include <string>

namespace megatron {
namespace {

constexpr int kRoundTrips = 8;  // each takes about ten microseconds

int64_t host_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

CudaTracer::~CudaTracer() {
  for (cudaEvent_t event : events_) cudaEventDestroy(event);
}

void CudaTracer::mark() noexcept {
  const auto note = [&](cudaError_t status) {
    if (failure_ == cudaSuccess) failure_ = status;
  };
  if (num_marks_ == events_.size()) note(cudaEventCreate(&events_.emplace_back()));
  note(cudaEventRecord(events_[num_marks_++], stream_));
}

/// The clocks are compared when the stream is idle: an event then happens between two readings of the host's clock,
/// which are some microseconds apart. Other processes may delay either side, so the shortest of several round trips
/// counts.
std::vector<int64_t> CudaTracer::read_marks() {
  const size_t num_marks = num_marks_;
  check_cuda(cudaStreamSynchronize(stream_), "the work on the GPU");
  int64_t shortest = std::numeric_limits<int64_t>::max(), reference_ns = 0;
  size_t reference = num_marks;
  for (int i = 0; i < kRoundTrips; ++i) {
    const size_t event = num_marks_;
    const int64_t before = host_now();
    mark();
    check_cuda(failure_, "marking the stream");
    check_cuda(cudaEventSynchronize(events_[event]), "cudaEventSynchronize");
    const int64_t round_trip = host_now() - before;
    if (round_trip >= shortest) continue;
    shortest = round_trip;
    reference = event;
    reference_ns = before + round_trip / 2;
  }
  std::vector<int64_t> times;
  for (size_t i = 0; i < num_marks; ++i) {
    float ms = 0;  // from the mark to the reference
    check_cuda(cudaEventElapsedTime(&ms, events_[i], events_[reference]), "cudaEventElapsedTime");
    times.push_back(reference_ns - static_cast<int64_t>(static_cast<double>(ms) * 1e6));
  }
  num_marks_ = 0;
  return times;
}

void CudaTracer::push_range(std::string_view name) { nvtxRangePushA(std::string(name).c_str()); }
void CudaTracer::pop_range() noexcept { nvtxRangePop(); }

}  // namespace megatron
