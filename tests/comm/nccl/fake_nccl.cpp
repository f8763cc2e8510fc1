#include "tests/comm/nccl/fake_nccl.h"

#include <cstddef>
#include <cstring>

using megatron::testing::fake_nccl;
using megatron::testing::FakeNccl;

namespace megatron::testing {

FakeNccl& fake_nccl() {
  static FakeNccl fake;
  return fake;
}

}  // namespace megatron::testing

struct ncclComm {
  int looks = 0;
};

namespace {

constexpr int kSuccess = 0, kInvalidArgument = 4, kInProgress = 7;

/// Begins something on `communicator`, which must have nothing in progress.
int begin(const std::string& name, ncclComm* communicator) {
  if (communicator->looks != 0) return kInvalidArgument;
  fake_nccl().called(name);
  communicator->looks = fake_nccl().looks;
  return communicator->looks == 0 ? kSuccess : kInProgress;
}

}  // namespace

extern "C" {

struct ncclId {
  char bytes[128];
};
/// The head of ncclConfig_t.
struct ncclConfig {
  size_t size;
  unsigned magic, version;
  int blocking;
};

int ncclGetVersion(int* version) {
  *version = fake_nccl().version;
  return kSuccess;
}
const char* ncclGetErrorString(int) { return "a failure"; }
const char* ncclGetLastError(ncclComm*) { return "Nobody is there."; }
int ncclGetUniqueId(ncclId* id) {
  std::memset(id, 1, sizeof *id);
  return kSuccess;
}
int ncclCommInitRankConfig(ncclComm** communicator, int, ncclId, int, ncclConfig* config) {
  if (config->magic != 0xcafebeef || config->blocking != 0) return kInvalidArgument;
  *communicator = new ncclComm;
  return begin("init", *communicator);
}
int ncclCommFinalize(ncclComm* communicator) { return begin("finalize", communicator); }
int ncclCommDestroy(ncclComm* communicator) {
  fake_nccl().called("destroy");
  delete communicator;
  return kSuccess;
}
int ncclCommAbort(ncclComm* communicator) {
  fake_nccl().called("abort");
  delete communicator;
  return kSuccess;
}
int ncclCommGetAsyncError(ncclComm* communicator, int* state) {
  if (communicator->looks > 0) --communicator->looks;
  *state = communicator->looks == 0 ? fake_nccl().result.load() : kInProgress;
  return kSuccess;
}
int ncclAllReduce(const void*, void*, size_t, int, int, ncclComm* communicator, void*) {
  return begin("all_reduce", communicator);
}
int ncclReduceScatter(const void*, void*, size_t, int, int, ncclComm* communicator, void*) {
  return begin("reduce_scatter", communicator);
}
int ncclAllGather(const void*, void*, size_t, int, ncclComm*, void*) { return kSuccess; }
int ncclBroadcast(const void*, void*, size_t, int, int, ncclComm*, void*) { return kSuccess; }
int ncclSend(const void*, size_t, int, int peer, ncclComm* communicator, void*) {
  return begin("send to " + std::to_string(peer), communicator);
}
int ncclRecv(void*, size_t, int, int peer, ncclComm* communicator, void*) {
  return begin("receive from " + std::to_string(peer), communicator);
}
int ncclGroupStart() {
  fake_nccl().called("group_start");
  return kSuccess;
}
int ncclGroupEnd() {
  fake_nccl().called("group_end");
  return kSuccess;
}

}  // extern "C"
