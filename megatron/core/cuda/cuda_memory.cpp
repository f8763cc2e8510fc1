#include "megatron/core/cuda/cuda_memory.h"

#include <algorithm>
#include <bit>

#include "megatron/base/error.h"

namespace megatron {
namespace {
constexpr size_t kLeastGrowthBytes = size_t{16} << 20;
constexpr size_t kGrowthShare = 64;  // device memory in use stays within 2 % of what the arena needs
/// Locked at a time: as much as there is already, within these bounds, as hosts have less to spare than to give out
/// twice.
constexpr int64_t kLeastLockBytes = int64_t{32} << 20, kMostLockBytes = int64_t{1} << 30;

CUdeviceptr address(const std::byte* data) { return reinterpret_cast<CUdeviceptr>(data); }
}  // namespace

CudaMemory::CudaMemory(int device, cudaStream_t stream) : stream_(stream), uploads_(stream) {
  properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties_.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
  check_cuda(driver_.get_granularity(&granularity_, &properties_, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
             "cuMemGetAllocationGranularity");
}

CudaMemory::~CudaMemory() {
  while (!segments_.empty()) release(segments_.begin()->first, 0);
}

int64_t CudaMemory::capacity_bytes() const {
  size_t free = 0, total = 0;
  check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
  return static_cast<int64_t>(free);
}

std::byte* CudaMemory::reserve(int64_t bytes) {
  CUdeviceptr base = 0;
  const size_t size = rounded(static_cast<size_t>(bytes));
  check_cuda(driver_.address_reserve(&base, size, granularity_, 0, 0), "cuMemAddressReserve");
  auto* data = std::bit_cast<std::byte*>(base);  // the driver's addresses are numbers
  segments_[data] = {.reserved_bytes = size, .backed_bytes = 0};
  return data;
}

void CudaMemory::release(std::byte* base, int64_t) noexcept {
  const Segment segment = segments_.at(base);
  cudaStreamSynchronize(stream_);
  if (segment.backed_bytes > 0) driver_.unmap(address(base), segment.backed_bytes);
  driver_.address_free(address(base), segment.reserved_bytes);
  segments_.erase(base);
}

bool CudaMemory::map(std::byte* to, size_t bytes) const {
  CUmemGenericAllocationHandle memory{};
  const CUresult status = driver_.create(&memory, bytes, &properties_, 0);
  if (status == CUDA_ERROR_OUT_OF_MEMORY) return false;
  check_cuda(status, "cuMemCreate");
  check_cuda(driver_.map(address(to), bytes, 0, memory, 0), "cuMemMap");
  check_cuda(driver_.release(memory), "cuMemRelease");  // the mapping keeps it
  const CUmemAccessDesc access{.location = properties_.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  check_cuda(driver_.set_access(address(to), bytes, &access, 1), "cuMemSetAccess");
  return true;
}

bool CudaMemory::back(std::byte* base, int64_t bytes) {
  Segment& segment = segments_.at(base);
  const size_t needed = static_cast<size_t>(bytes);
  if (needed <= segment.backed_bytes) return true;
  const size_t room = segment.reserved_bytes - segment.backed_bytes;
  const size_t growth = std::max({needed - segment.backed_bytes, kLeastGrowthBytes, needed / kGrowthShare});
  // If the GPU has less than that, the needed size alone is tried.
  for (const size_t wanted : {std::min(rounded(growth), room), rounded(needed - segment.backed_bytes)})
    if (map(base + segment.backed_bytes, wanted)) {
      segment.backed_bytes += wanted;
      return true;
    }
  return false;
}

void CudaMemory::fill(std::byte* to, int value, int64_t bytes) {
  check_cuda(cudaMemsetAsync(to, value, static_cast<size_t>(bytes), stream_), "cudaMemsetAsync");
}

void CudaMemory::read(const std::byte* from, std::span<std::byte> to) {
  check_cuda(cudaMemcpyAsync(to.data(), from, to.size(), cudaMemcpyDeviceToHost, stream_), "copy to the host");
  check_cuda(cudaStreamSynchronize(stream_), "the work on the GPU");
  uploads_.start_over();
}

void CudaMemory::write(std::span<const std::byte> from, std::byte* to) { uploads_.upload(from, to); }

void CudaMemory::copy(const std::byte* from, std::byte* to, int64_t bytes) {
  check_cuda(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), cudaMemcpyDeviceToDevice, stream_),
             "copy on the device");
}

std::byte* CudaPinnedMemory::reserve(int64_t bytes) {
  std::byte* base = host_.reserve(bytes);
  segments_[base] = {.reserved_bytes = bytes};
  return base;
}

void CudaPinnedMemory::release(std::byte* base, int64_t bytes) noexcept {
  cudaStreamSynchronize(stream_);
  for (std::byte* piece : segments_.at(base).pieces) {
    cudaHostUnregister(piece);
    locked_.remove(piece);
  }
  segments_.erase(base);
  host_.release(base, bytes);
}

bool CudaPinnedMemory::back(std::byte* base, int64_t bytes) {
  Segment& segment = segments_.at(base);
  if (bytes <= segment.locked_bytes) return true;
  const int64_t growth =
      std::max(bytes - segment.locked_bytes, std::clamp(segment.locked_bytes, kLeastLockBytes, kMostLockBytes));
  const int64_t pages = (growth + kLeastLockBytes - 1) / kLeastLockBytes * kLeastLockBytes;
  const int64_t piece = std::min(pages, segment.reserved_bytes - segment.locked_bytes);
  const cudaError_t status =
      cudaHostRegister(base + segment.locked_bytes, static_cast<size_t>(piece), cudaHostRegisterPortable);
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // so that a later launch does not report it
    return false;
  }
  check_cuda(status, "cudaHostRegister");
  segment.pieces.push_back(base + segment.locked_bytes);
  locked_.add(base + segment.locked_bytes, piece);
  segment.locked_bytes += piece;
  return true;
}

void CudaPinnedMemory::fill(std::byte* to, int value, int64_t bytes) {
  check_cuda(cudaStreamSynchronize(stream_), "the work on the GPU");
  host_.fill(to, value, bytes);
}

void CudaPinnedMemory::read(const std::byte* from, std::span<std::byte> to) {
  check_cuda(cudaStreamSynchronize(stream_), "the work on the GPU");
  host_.read(from, to);
}

void CudaPinnedMemory::write(std::span<const std::byte> from, std::byte* to) {
  check_cuda(cudaStreamSynchronize(stream_), "the work on the GPU");
  host_.write(from, to);
}

void CudaPinnedMemory::copy(const std::byte* from, std::byte* to, int64_t bytes) {
  check_cuda(cudaStreamSynchronize(stream_), "the work on the GPU");
  host_.copy(from, to, bytes);
}

}  // namespace megatron
