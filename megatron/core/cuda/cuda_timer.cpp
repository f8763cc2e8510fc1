#include "megatron/core/cuda/driver.h"
#include "megatron/core/device_timer.h"

namespace megatron {
namespace {

class Event {
 public:
  Event() { check_cuda(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

std::vector<double> cuda_seconds_of_calls(const CudaStream& stream, int64_t num_calls,
                                          const std::function<void(int64_t)>& call) {
  const std::vector<Event> events(static_cast<size_t>(num_calls) + 1);
  check_cuda(cudaEventRecord(events[0].get(), stream.stream), "cudaEventRecord");
  for (int64_t i = 0; i < num_calls; ++i) {
    call(i);
    check_cuda(cudaEventRecord(events[static_cast<size_t>(i) + 1].get(), stream.stream), "cudaEventRecord");
  }
  check_cuda(cudaEventSynchronize(events.back().get()), "the timed kernels");
  std::vector<double> seconds;
  for (size_t i = 1; i < events.size(); ++i) {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, events[i - 1].get(), events[i].get()), "cudaEventElapsedTime");
    seconds.push_back(1e-3 * static_cast<double>(milliseconds));
  }
  return seconds;
}

}  // namespace megatron
