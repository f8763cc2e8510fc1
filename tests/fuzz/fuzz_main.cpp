// The entry of libFuzzer for one target.
#include <cstdint>

#include "megatron/base/error.h"
#include "tests/fuzz/fuzz_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    megatron::testing::MEGATRON_FUZZ_TARGET({reinterpret_cast<const std::byte*>(data), size});
  } catch (const megatron::Error&) {  // the input is no such file, as most
  }
  return 0;
}
