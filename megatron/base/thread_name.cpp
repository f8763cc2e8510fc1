#include "megatron/base/thread_name.h"

#include <pthread.h>

#include <array>

namespace megatron {
namespace {

constexpr size_t kSpace = 16;  // with the end; Linux refuses longer names

}  // namespace

void set_thread_name(std::string_view name) {
  const std::string kept(name.substr(0, kSpace - 1));
  pthread_setname_np(pthread_self(), kept.c_str());
}

void set_worker_thread_name(std::string_view work) {
  const std::string starter = thread_name();
  const size_t number = starter.find_last_not_of("0123456789") + 1;
  set_thread_name(std::string(work) + (number < starter.size() ? " " + starter.substr(number) : ""));
}

std::string thread_name() {
  std::array<char, kSpace> name{};
  pthread_getname_np(pthread_self(), name.data(), name.size());
  return name.data();
}

}  // namespace megatron
