// Preloaded into a program, makes its writes and reads of files shorter than asked for and interrupts some of them, as
// the operating system may do at any time.
//
//   LD_PRELOAD=short_writes.so megatron pretrain_gpt ...
#include <dlfcn.h>
#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstddef>

namespace {

constexpr size_t kMostBytes = 40009;  // of one call
std::atomic<unsigned> num_calls = 0;

bool is_interrupted() {
  if (num_calls++ % 7 != 3) return false;
  errno = EINTR;
  return true;
}

template <class Function>
Function* original(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

ssize_t write(int descriptor, const void* data, size_t count) {
  static const auto call = original<ssize_t(int, const void*, size_t)>("write");
  if (descriptor <= 2) return call(descriptor, data, count);
  return is_interrupted() ? -1 : call(descriptor, data, std::min(count, kMostBytes));
}

ssize_t pread(int descriptor, void* data, size_t count, off_t offset) {
  static const auto call = original<ssize_t(int, void*, size_t, off_t)>("pread");
  return is_interrupted() ? -1 : call(descriptor, data, std::min(count, kMostBytes), offset);
}

ssize_t pread64(int descriptor, void* data, size_t count, off64_t offset) {
  static const auto call = original<ssize_t(int, void*, size_t, off64_t)>("pread64");
  return is_interrupted() ? -1 : call(descriptor, data, std::min(count, kMostBytes), offset);
}

}  // extern "C"
