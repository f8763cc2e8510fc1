// A page of host memory that processes of one host share, and that their GPUs read and write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace megatron {

class SharedPage {
 public:
  static constexpr size_t kBytes = 4096;

  /// All zero. Null where the host has no shared memory, or the GPU does not reach it.
  static std::unique_ptr<SharedPage> make();
  /// That of another process. Null where there is none.
  static std::unique_ptr<SharedPage> open(const std::string& name);
  ~SharedPage();
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;

  const std::string& name() const { return name_; }
  /// Nobody opens it any more; those who have it keep it.
  void forget_name() noexcept;
  uint32_t* host() const { return host_; }
  /// The same for the GPU.
  std::byte* device() const { return device_; }

 private:
  explicit SharedPage(std::string name) : name_(std::move(name)) {}
  /// @return whether the GPU reaches it now
  bool map(int file);

  std::string name_;
  bool is_named_ = false;  // by this process
  uint32_t* host_ = nullptr;
  std::byte* device_ = nullptr;
};

}  // namespace megatron
