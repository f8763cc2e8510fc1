#include "megatron/core/device.h"

#include "megatron/base/error.h"
#include "megatron/core/host_memory.h"

namespace megatron {
namespace {

DeviceKind backend_of(DeviceKind kind, const Device::Options& options) {
  const DeviceKind backend = kind == DeviceKind::kMeta ? options.meta_of : kind;
  require<ConfigError>(backend != DeviceKind::kMeta, "[Device] meta_of is a device that has kernels: cpu or cuda.");
  require<ConfigError>(!options.guard || kind == DeviceKind::kCpu, "[Device] only memory of a cpu device is guarded.");
  require<DeviceError>(kHasCuda || backend == DeviceKind::kCpu,
                       "[Device] this build has no CUDA kernels. Build with -DMEGATRON_CUDA=ON, or choose the cpu.");
  return backend;
}

std::unique_ptr<CudaDevice> cuda_of(DeviceKind kind, const Device::Options& options) {
  return kind == DeviceKind::kCuda ? open_cuda_device(options.cuda_device) : nullptr;
}

std::unique_ptr<ArenaMemory> memory_of(DeviceKind kind, const Device::Options& options, CudaDevice* cuda) {
  if (kind == DeviceKind::kMeta) return nullptr;
  if (cuda) return cuda->make_memory();
  if (options.guard) return std::make_unique<GuardedHostMemory>();
  return std::make_unique<HostMemory>();
}

std::unique_ptr<ArenaMemory> pinned_memory_of(DeviceKind kind, CudaDevice* cuda) {
  if (kind == DeviceKind::kMeta) return nullptr;
  if (cuda) return cuda->make_pinned_memory();
  return std::make_unique<HostMemory>();
}

Arena::Options arena_options(const Device::Options& options) {
  return {options.capacity_bytes, options.poison, options.record_events};
}

}  // namespace

Device::Device(DeviceKind kind, const Options& options)
    : kind_(kind),
      backend_(backend_of(kind, options)),
      cuda_(cuda_of(kind, options)),
      cpu_stream_{options.num_threads, &libraries_},
      cuda_stream_{cuda_ ? cuda_->stream() : nullptr, &libraries_},
      num_tapes_(static_cast<uint32_t>(RandomKey::mix(reinterpret_cast<uintptr_t>(this)))),
      arena(arena_options(options), memory_of(kind, options, cuda_.get())),
      pinned(arena_options(options), pinned_memory_of(kind, cuda_.get())) {}

std::unique_ptr<DeviceTracer> Device::make_tracer() { return cuda_ ? cuda_->make_tracer() : nullptr; }

std::unique_ptr<CopyQueue> Device::make_copy_queue() {
  if (cuda_) return cuda_->make_copy_queue();
  return std::make_unique<HostCopyQueue>(is_meta() ? nullptr : &arena);
}

CopyQueue& Device::copies_to_host() {
  if (!to_host_) to_host_ = make_copy_queue();
  return *to_host_;
}

CopyQueue& Device::copies_to_device() {
  if (!to_device_) to_device_ = make_copy_queue();
  return *to_device_;
}

void Device::synchronize() {
  if (cuda_) cuda_->synchronize();
}

}  // namespace megatron
