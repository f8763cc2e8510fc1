#include "megatron/comm/nccl/shared_page.h"

#include <cuda_runtime_api.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <unistd.h>

namespace megatron {

std::unique_ptr<SharedPage> SharedPage::make() {
  std::unique_ptr<SharedPage> page(new SharedPage({}));
  page->name_ = fmt::format("/megatron.{}.{}", getpid(), reinterpret_cast<uintptr_t>(page.get()));
  const int file = shm_open(page->name_.c_str(), O_CREAT | O_EXCL | O_RDWR, S_IRUSR | S_IWUSR);
  if (file < 0) return nullptr;
  page->is_named_ = true;
  const bool has_size = ftruncate(file, kBytes) == 0;
  const bool is_mapped = page->map(file) && has_size;
  return is_mapped ? std::move(page) : nullptr;
}

std::unique_ptr<SharedPage> SharedPage::open(const std::string& name) {
  std::unique_ptr<SharedPage> page(new SharedPage(name));
  const int file = shm_open(name.c_str(), O_RDWR, 0);
  return file >= 0 && page->map(file) ? std::move(page) : nullptr;
}

bool SharedPage::map(int file) {
  void* host = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (host == MAP_FAILED) return false;
  host_ = static_cast<uint32_t*>(host);
  void* device = nullptr;
  const bool is_reached =
      cudaHostRegister(host, kBytes, cudaHostRegisterPortable | cudaHostRegisterMapped) == cudaSuccess &&
      cudaHostGetDevicePointer(&device, host, 0) == cudaSuccess;
  device_ = static_cast<std::byte*>(device);
  if (!is_reached) cudaGetLastError();  // clears the error, so that no later launch reports it
  return is_reached;
}

void SharedPage::forget_name() noexcept {
  if (is_named_) shm_unlink(name_.c_str());
  is_named_ = false;
}

SharedPage::~SharedPage() {
  forget_name();
  if (device_) cudaHostUnregister(host_);
  if (host_) munmap(host_, kBytes);
}

}  // namespace megatron
