// Messages between processes by Open MPI: the only file that knows MPI.
#pragma once

#include <cstddef>
#include <memory>

struct ompi_request_t;

namespace megatron {

/// A process's rank in the job that mpirun or srun started. Open MPI (libmpi.so.40, releases 4 and 5) is loaded when
/// one is made, so the program neither links MPI nor needs its headers. MPI can be started once in a process.
/// Calls come from any thread, one at a time. All but end_all() throw CommError with Open MPI's error text.
class MpiTransport {
 public:
  /// A message in flight; null once it is done.
  using Request = ompi_request_t*;

  /// @throw NotSupported if the library is missing, or without support for threads; CommError if it fails.
  MpiTransport();
  ~MpiTransport();
  MpiTransport(const MpiTransport&) = delete;
  MpiTransport& operator=(const MpiTransport&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }

  /// Tags are 0 to kMaxTag; messages of one tag between two ranks keep their order. At most kMaxBytes each.
  Request send(int rank, int tag, const void* data, size_t bytes) const;
  /// Is done when the receiver has begun to receive.
  Request synchronous_send(int rank, int tag, const void* data, size_t bytes) const;
  Request receive(int rank, int tag, void* data, size_t bytes) const;
  Request receive_from_any(int tag, void* data, size_t bytes) const;
  /// Says whether the message is done; then the request becomes null. Lets all messages of the process progress.
  bool test(Request& request) const;
  /// Cancels the receive of a message that has not been sent.
  void cancel(Request& request) const;

  /// Leaves the job; returns when all ranks have called it. No message may be in flight, and none can follow.
  void finish();
  /// Ends the processes of all ranks with this exit status. Any thread, any time.
  [[noreturn]] void end_all(int exit_status) const noexcept;

  static constexpr int kMaxTag = (1 << 30) - 1;
  static constexpr size_t kMaxBytes = size_t{1} << 30;  // MPI counts in int

 private:
  struct Library;
  void check(const char* call, int status) const;

  std::unique_ptr<Library> library_;
  int rank_ = 0, size_ = 1;
  bool is_finished_ = false;
};

}  // namespace megatron
