#include "megatron/comm/nccl/nccl_library.h"

#include <dlfcn.h>

#include <climits>
#include <string_view>

#include "megatron/base/error.h"

// NCCL's binary interface, stable under the name libnccl.so.2 (equal to its nccl.h).

namespace megatron {
namespace {

constexpr const char* kNcclLibrary = "libnccl.so.2";
constexpr std::string_view kRemedy =
    "Install NCCL 2.27 or newer: apt-get install libnccl2, or pip install 'nvidia-nccl-cu13>=2.27' (nvidia-nccl-cu12 "
    "for CUDA 12) and put nvidia/nccl/lib of its site-packages in front of LD_LIBRARY_PATH. --device cpu does not need "
    "NCCL.";
constexpr int kSuccess = 0, kInProgress = 7;  // ncclResult_t
constexpr int kUint8 = 1;                     // ncclDataType_t

/// ncclConfig_t of NCCL 2.18: a newer library uses defaults for fields beyond `version`.
struct Config {
  static constexpr int kUndefined = INT_MIN;
  size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef, version = 21800;
  int blocking = 0;
  int cga_cluster_size = kUndefined, min_ctas = kUndefined, max_ctas = kUndefined;
  const char* net_name = nullptr;
  int split_share = kUndefined;
};

int type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return 8;
    case DType::kFloat32:
      return 7;
    case DType::kBFloat16:
      return 9;
    case DType::kFloat16:
      return 6;
    case DType::kInt64:
      return 4;
    case DType::kInt32:
      return 2;
    case DType::kUInt8:
      return kUint8;
    default:
      throw InternalError(fmt::format("[NcclLibrary] {} cannot be reduced", name_of(dtype)));
  }
}

int reduction_of(ReduceOp reduce) {
  switch (reduce) {
    case ReduceOp::kSum:
      return 0;
    case ReduceOp::kMax:
      return 2;
    case ReduceOp::kMin:
      return 3;
    case ReduceOp::kAverage:
      return 4;
  }
  return 0;
}

template <class Symbol>
void find(void* library, const char* name, Symbol*& symbol) {
  symbol = reinterpret_cast<Symbol*>(dlsym(library, name));
  require<NotSupported>(symbol != nullptr, "{} has no {}: it is too old. {}", kNcclLibrary, name, kRemedy);
}

}  // namespace

NcclLibrary::NcclLibrary() {
  void* library = dlopen(kNcclLibrary, RTLD_NOW | RTLD_LOCAL);
  if (!library)
    throw NotSupported(fmt::format("Several GPUs communicate through NCCL, but {} cannot be loaded: {}. {}",
                                   kNcclLibrary, dlerror(), kRemedy));
  find(library, "ncclGetVersion", call_.get_version);
  check("ncclGetVersion", call_.get_version(&version_));
  require<NotSupported>(version_ >= kOldest, "{} is NCCL {}.{}, but at least 2.27 is needed. {}", kNcclLibrary,
                        version_ / 10000, version_ / 100 % 100, kRemedy);
  find(library, "ncclGetErrorString", call_.get_error_string);
  find(library, "ncclGetLastError", call_.get_last_error);
  find(library, "ncclGetUniqueId", call_.get_unique_id);
  find(library, "ncclCommInitRankConfig", call_.init_rank);
  find(library, "ncclCommFinalize", call_.finalize);
  find(library, "ncclCommDestroy", call_.destroy);
  find(library, "ncclCommAbort", call_.abort);
  find(library, "ncclCommGetAsyncError", call_.get_async_error);
  find(library, "ncclAllReduce", call_.all_reduce);
  find(library, "ncclReduceScatter", call_.reduce_scatter);
  find(library, "ncclAllGather", call_.all_gather);
  find(library, "ncclBroadcast", call_.broadcast);
  find(library, "ncclSend", call_.send);
  find(library, "ncclRecv", call_.receive);
  find(library, "ncclGroupStart", call_.group_start);
  find(library, "ncclGroupEnd", call_.group_end);
}

void NcclLibrary::check(const char* call, int status) const {
  if (status == kSuccess || status == kInProgress) return;
  if (!call_.get_error_string) throw CommError(fmt::format("{} failed with status {}", call, status));
  throw CommError(fmt::format("{} failed: {}. {} (NCCL_DEBUG=INFO prints more)", call, call_.get_error_string(status),
                              call_.get_last_error(nullptr)));
}

NcclLibrary::UniqueId NcclLibrary::get_unique_id() const {
  UniqueId id{};
  check("ncclGetUniqueId", call_.get_unique_id(&id));
  return id;
}

NcclLibrary::Communicator NcclLibrary::init_rank(int num_ranks, const UniqueId& id, int rank,
                                                 int max_multiprocessors) const {
  Communicator communicator = nullptr;
  Config config;
  if (max_multiprocessors > 0) config.max_ctas = max_multiprocessors;
  check("ncclCommInitRankConfig", call_.init_rank(&communicator, num_ranks, id, rank, &config));
  return communicator;
}

void NcclLibrary::finalize(Communicator communicator) const { check("ncclCommFinalize", call_.finalize(communicator)); }
void NcclLibrary::destroy(Communicator communicator) const noexcept { call_.destroy(communicator); }
void NcclLibrary::abort(Communicator communicator) const noexcept { call_.abort(communicator); }

bool NcclLibrary::is_in_progress(Communicator communicator) const {
  int status = kSuccess;
  check("ncclCommGetAsyncError", call_.get_async_error(communicator, &status));
  check("An operation of NCCL", status);
  return status == kInProgress;
}

void NcclLibrary::all_reduce(const void* input, void* output, size_t count, DType dtype, ReduceOp reduce,
                             Communicator communicator, Stream stream) const {
  check("ncclAllReduce",
        call_.all_reduce(input, output, count, type_of(dtype), reduction_of(reduce), communicator, stream));
}

void NcclLibrary::reduce_scatter(const void* input, void* output, size_t count, DType dtype, ReduceOp reduce,
                                 Communicator communicator, Stream stream) const {
  check("ncclReduceScatter",
        call_.reduce_scatter(input, output, count, type_of(dtype), reduction_of(reduce), communicator, stream));
}

void NcclLibrary::all_gather(const void* input, void* output, size_t bytes, Communicator communicator,
                             Stream stream) const {
  check("ncclAllGather", call_.all_gather(input, output, bytes, kUint8, communicator, stream));
}

void NcclLibrary::broadcast(const void* input, void* output, size_t bytes, int root, Communicator communicator,
                            Stream stream) const {
  check("ncclBroadcast", call_.broadcast(input, output, bytes, kUint8, root, communicator, stream));
}

void NcclLibrary::send(const void* input, size_t bytes, int peer, Communicator communicator, Stream stream) const {
  check("ncclSend", call_.send(input, bytes, kUint8, peer, communicator, stream));
}

void NcclLibrary::receive(void* output, size_t bytes, int peer, Communicator communicator, Stream stream) const {
  check("ncclRecv", call_.receive(output, bytes, kUint8, peer, communicator, stream));
}

void NcclLibrary::group_start() const { check("ncclGroupStart", call_.group_start()); }
void NcclLibrary::group_end() const { check("ncclGroupEnd", call_.group_end()); }

}  // namespace megatron
