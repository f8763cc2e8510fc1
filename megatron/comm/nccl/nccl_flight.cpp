#include "megatron/comm/nccl/nccl_flight.h"

#include <cstring>
#include <utility>

#include "megatron/comm/nccl/cuda_check.h"

namespace megatron {

CudaEvents::~CudaEvents() {
  for (CUevent_st* event : free_) cudaEventDestroy(event);
}

CUevent_st* CudaEvents::take() {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      CUevent_st* event = free_.back();
      free_.pop_back();
      return event;
    }
  }
  CUevent_st* event = nullptr;
  check_cuda_call(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreate");
  return event;
}

void CudaEvents::give_back(CUevent_st* event) {
  const std::lock_guard lock(mutex_);
  free_.push_back(event);
}

NcclFlight::NcclFlight(const Resources& resources, const OperationInfo& info, std::string_view group, LanePlace place,
                       const NcclOperands& operands)
    : resources_(resources),
      info_(info),
      group_(group),
      place_(std::move(place)),
      operands_(operands),
      enqueued_(std::chrono::steady_clock::now()),
      is_input_staged_(is_host_memory(operands.input)),
      is_output_staged_(is_host_memory(operands.output)),
      entry_(resources.events.take()),
      start_(resources.events.take()),
      end_(resources.events.take()) {
  is_for_host_ = is_for_host(info.op, operands);
  if (is_input_staged_) input_ = resources_.pinned.take(operands.input_bytes);
  if (is_output_staged_) output_ = resources_.pinned.take(operands.output_bytes);
  check_cuda_call(cudaEventRecord(entry_, resources_.compute), "cudaEventRecord");
}

NcclFlight::NcclFlight(const Resources& resources, std::string text, std::chrono::milliseconds timeout, LanePlace place)
    : NcclFlight(resources, OperationInfo{.timeout = timeout}, "", std::move(place), {}) {
  text_ = std::move(text);
  is_for_host_ = false;
}

NcclFlight::~NcclFlight() {
  for (CUevent_st* event : {entry_, start_, end_}) resources_.events.give_back(event);
}

bool NcclFlight::is_for_host(CommOp op, const NcclOperands& operands) {
  return op == CommOp::kBarrier || is_host_memory(operands.input) || is_host_memory(operands.output);
}

void NcclFlight::add_host_copy(const HostCopy& copy, NcclLibrary::Stream stream) {
  copies_.push_back(std::make_unique<HostCopy>(copy));
  const auto run = [](void* data) {
    const auto& own = *static_cast<const HostCopy*>(data);
    if (!own.has_failed()) std::memcpy(own.to, own.from, own.bytes);
  };
  check_cuda_call(cudaLaunchHostFunc(stream, run, copies_.back().get()), "cudaLaunchHostFunc");
}

void NcclFlight::launch(const NcclLaunch& function, NcclLibrary::Stream stream,
                        const std::function<bool()>& has_failed) {
  check_cuda_call(cudaStreamWaitEvent(stream, entry_), "cudaStreamWaitEvent");
  check_cuda_call(cudaEventRecord(start_, stream), "cudaEventRecord");
  if (is_input_staged_) add_host_copy({operands_.input, input_.data(), operands_.input_bytes, has_failed}, stream);
  const void* input = is_input_staged_ ? input_.data() : operands_.input;
  void* output = is_output_staged_ ? output_.data() : operands_.output;
  function(input, output, stream);
  if (is_output_staged_) add_host_copy({output_.data(), operands_.output, operands_.output_bytes, has_failed}, stream);
  check_cuda_call(cudaEventRecord(end_, stream), "cudaEventRecord");
}

void NcclFlight::launch_graph(const std::function<void()>& function) {
  check_cuda_call(cudaEventRecord(start_, resources_.compute), "cudaEventRecord");
  function();
  check_cuda_call(cudaEventRecord(end_, resources_.compute), "cudaEventRecord");
}

bool NcclFlight::has_passed(CUevent_st* event) const {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) return false;
  require<CommError>(status == cudaSuccess,
                     "{} cannot end: the GPU reports \"{}\", for it or for a kernel before it. Run with "
                     "CUDA_LAUNCH_BLOCKING=1, or under compute-sanitizer, to find that kernel.",
                     to_string(), cudaGetErrorString(status));
  return true;
}

bool NcclFlight::is_over() const noexcept { return cudaEventQuery(end_) != cudaErrorNotReady; }
bool NcclFlight::has_started() const { return has_passed(start_); }
bool NcclFlight::has_ended() const { return has_passed(end_); }
void NcclFlight::make_stream_wait(NcclLibrary::Stream stream) const {
  check_cuda_call(cudaStreamWaitEvent(stream, end_), "cudaStreamWaitEvent");
}

}  // namespace megatron
