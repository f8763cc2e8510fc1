// SHA-256, which `integrity.json` uses. Source: FIPS 180-4.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace megatron {

/// Takes a message piece by piece. Example: Sha256 hash; hash.add(a); hash.add(b); hash.hex();
class Sha256 {
 public:
  void add(std::span<const std::byte> bytes);
  /// 64 hexadecimal digits of everything added. Ends the message.
  std::string hex();

 private:
  void add_block(const std::byte* block);

  static constexpr size_t kBlockBytes = 64;
  std::array<uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                    0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, kBlockBytes> pending_{};
  size_t num_pending_ = 0;
  uint64_t num_bytes_ = 0;
};

std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace megatron
