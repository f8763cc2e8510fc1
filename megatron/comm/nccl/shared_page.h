// A page of host memory that processes of one host share, and that their GPUs can access.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace megatron {

class SharedPage {
 public:
  static constexpr size_t kBytes = 4096;

  /// A page of zeros. Null if the host has no shared memory, or the GPU cannot access it.
  static std::unique_ptr<SharedPage> make();
  /// The page of another process. Null if there is none.
  static std::unique_ptr<SharedPage> open(const std::string& name);
  ~SharedPage();
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;

  const std::string& name() const { return name_; }
  /// Removes its name: it cannot be opened any more; open pages stay.
  void forget_name() noexcept;
  uint32_t* host() const { return host_; }
  /// The address for the GPU.
  std::byte* device() const { return device_; }

 private:
  explicit SharedPage(std::string name) : name_(std::move(name)) {}
  /// @return whether the GPU can access it now
  bool map(int file);

  std::string name_;
  bool is_named_ = false;  // by this process
  uint32_t* host_ = nullptr;
  std::byte* device_ = nullptr;
};

}  // namespace megatron
