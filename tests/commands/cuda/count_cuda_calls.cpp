// Counts calls of the CUDA runtime by name, in any program, and prints them at its exit: CUDA loads this library into
// a process that starts with CUDA_INJECTION64_PATH=libcount_cuda_calls.so. Calls of two runs of different length,
// subtracted, are those of a step (benchmarks/gpu_calls.sh). A rank that a command has started adds its number to the
// name of the file.
#include <cupti.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

namespace {

struct Counts {
  std::mutex mutex;
  std::map<std::string, long> by_name;
};
Counts* counts;  // never freed: CUDA calls back until the end of the process

void CUPTIAPI on_call(void*, CUpti_CallbackDomain, CUpti_CallbackId, const void* data) {
  const auto* call = static_cast<const CUpti_CallbackData*>(data);
  if (call->callbackSite != CUPTI_API_ENTER) return;
  const std::lock_guard lock(counts->mutex);
  ++counts->by_name[call->functionName];
}

void print() {
  const char *path = std::getenv("COUNT_CUDA_CALLS_FILE"), *rank = std::getenv("RANK");
  const std::string name = (path ? path : "") + (rank ? "." + std::string(rank) : "");
  std::FILE* file = path ? std::fopen(name.c_str(), "w") : stderr;
  if (!file) return;
  const std::lock_guard lock(counts->mutex);
  for (const auto& [name, number] : counts->by_name) std::fprintf(file, "%s %ld\n", name.c_str(), number);
  if (path) std::fclose(file);
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int InitializeInjection() {
  counts = new Counts;
  CUpti_SubscriberHandle subscriber;
  if (cuptiSubscribe(&subscriber, on_call, nullptr) != CUPTI_SUCCESS) return 0;
  cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_RUNTIME_API);
  cuptiEnableDomain(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API);
  std::atexit(print);
  return 1;
}
