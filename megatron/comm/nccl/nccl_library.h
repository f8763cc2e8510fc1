// NCCL's functions, loaded from the installed library.
#pragma once

#include <array>
#include <cstddef>

#include "megatron/comm/operation.h"

struct ncclComm;
struct CUstream_st;

namespace megatron {

/// The constructor loads the library, which stays loaded. A call that fails throws CommError with NCCL's error text.
///
/// Communicators do not block: a call on one returns at once, and its work continues in a thread of NCCL until
/// is_in_progress() is false. Until then only that and abort() may be called, which NcclCommunicator ensures. A
/// blocking call would wait forever for a missing rank.
class NcclLibrary {
 public:
  using Communicator = ncclComm*;
  using Stream = CUstream_st*;
  struct UniqueId {
    std::array<char, 128> bytes;
  };
  static constexpr int kOldest = 22700;  // 2.27.0

  /// @throw NotSupported if it is missing, or too old
  NcclLibrary();

  /// 22809 is 2.28.9.
  int version() const { return version_; }
  UniqueId get_unique_id() const;
  /// In progress until all ranks have called it. @param max_multiprocessors  that an operation may occupy, also while
  /// it waits; 0: NCCL's default, some 20 of 132
  Communicator init_rank(int num_ranks, const UniqueId& id, int rank, int max_multiprocessors) const;
  /// Completes all operations; in progress until the other ranks have called it too.
  void finalize(Communicator communicator) const;
  /// For a finalized communicator.
  void destroy(Communicator communicator) const noexcept;
  /// Ends operations in flight on this rank, in place of finalize() and destroy(). Any thread.
  void abort(Communicator communicator) const noexcept;
  /// Says whether a call is still in progress. @throw CommError if it, or an operation in flight, has failed
  bool is_in_progress(Communicator communicator) const;

  /// Counts are elements. The operation is on the stream once is_in_progress() is false.
  void all_reduce(const void* input, void* output, size_t count, DType dtype, ReduceOp reduce,
                  Communicator communicator, Stream stream) const;
  void reduce_scatter(const void* input, void* output, size_t count, DType dtype, ReduceOp reduce,
                      Communicator communicator, Stream stream) const;
  /// The following count bytes: values are moved, not changed.
  void all_gather(const void* input, void* output, size_t bytes, Communicator communicator, Stream stream) const;
  /// @param input is read on `root` only
  void broadcast(const void* input, void* output, size_t bytes, int root, Communicator communicator,
                 Stream stream) const;
  void send(const void* input, size_t bytes, int peer, Communicator communicator, Stream stream) const;
  void receive(void* output, size_t bytes, int peer, Communicator communicator, Stream stream) const;
  /// Calls between the two are one operation.
  void group_start() const;
  void group_end() const;

 private:
  struct Functions {
    int (*get_version)(int*);
    const char* (*get_error_string)(int);
    const char* (*get_last_error)(Communicator);
    int (*get_unique_id)(UniqueId*);
    int (*init_rank)(Communicator*, int, UniqueId, int, void*);
    int (*finalize)(Communicator);
    int (*destroy)(Communicator);
    int (*abort)(Communicator);
    int (*get_async_error)(Communicator, int*);
    int (*all_reduce)(const void*, void*, size_t, int, int, Communicator, Stream);
    int (*reduce_scatter)(const void*, void*, size_t, int, int, Communicator, Stream);
    int (*all_gather)(const void*, void*, size_t, int, Communicator, Stream);
    int (*broadcast)(const void*, void*, size_t, int, int, Communicator, Stream);
    int (*send)(const void*, size_t, int, int, Communicator, Stream);
    int (*receive)(void*, size_t, int, int, Communicator, Stream);
    int (*group_start)();
    int (*group_end)();
  };
  /// A call that is in progress has not failed.
  void check(const char* call, int status) const;

  Functions call_{};
  int version_ = 0;
};

}  // namespace megatron
