#include "megatron/comm/mpi/mpi_transport.h"

#include <dlfcn.h>
#include <unistd.h>

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "megatron/base/error.h"

// Open MPI's binary interface, stable under the name libmpi.so.40 (equal to its mpi.h).
struct ompi_communicator_t;
struct ompi_datatype_t;
struct ompi_errhandler_t;
struct ompi_status_public_t;

namespace megatron {
namespace {

constexpr const char* kLibrary = "libmpi.so.40";
constexpr int kAnySource = -1;        // MPI_ANY_SOURCE
constexpr int kThreadSerialized = 2;  // MPI_THREAD_SERIALIZED
constexpr size_t kMaxErrorString = 256;

}  // namespace

struct MpiTransport::Library {
  using Communicator = ompi_communicator_t*;
  using Datatype = ompi_datatype_t*;
  using Status = ompi_status_public_t*;  // null: not wanted (MPI_STATUS_IGNORE)

  /// RTLD_GLOBAL because Open MPI's own plugins look up its symbols.
  Library() : handle(dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL)) {
    if (!handle)
      throw NotSupported(fmt::format(
          "Ranks as processes communicate through Open MPI, but {} cannot be loaded: {}. Install it on every host "
          "(apt-get install libopenmpi3 openmpi-bin), or start ranks as threads with --nproc-per-node.",
          kLibrary, dlerror()));
    find("MPI_Init_thread", init_thread);
    find("MPI_Finalize", finalize);
    find("MPI_Abort", abort);
    find("MPI_Comm_rank", comm_rank);
    find("MPI_Comm_size", comm_size);
    find("MPI_Comm_dup", comm_dup);
    find("MPI_Comm_set_errhandler", comm_set_errhandler);
    find("MPI_Isend", isend);
    find("MPI_Issend", issend);
    find("MPI_Irecv", irecv);
    find("MPI_Test", test);
    find("MPI_Wait", wait);
    find("MPI_Cancel", cancel);
    find("MPI_Error_string", error_string);
    find("ompi_mpi_comm_world", world);
    find("ompi_mpi_byte", byte);
    find("ompi_mpi_errors_return", errors_return);
  }

  template <class Symbol>
  void find(const char* name, Symbol*& symbol) const {
    symbol = reinterpret_cast<Symbol*>(dlsym(handle, name));
    require<NotSupported>(symbol != nullptr, "{} has no {}: it is not Open MPI 4 or 5. Install openmpi-bin.", kLibrary,
                          name);
  }

  void* handle;
  int (*init_thread)(int*, char***, int, int*);
  int (*finalize)();
  int (*abort)(Communicator, int);
  int (*comm_rank)(Communicator, int*);
  int (*comm_size)(Communicator, int*);
  int (*comm_dup)(Communicator, Communicator*);
  int (*comm_set_errhandler)(Communicator, ompi_errhandler_t*);
  int (*isend)(const void*, int, Datatype, int, int, Communicator, Request*);
  int (*issend)(const void*, int, Datatype, int, int, Communicator, Request*);
  int (*irecv)(void*, int, Datatype, int, int, Communicator, Request*);
  int (*test)(Request*, int*, Status);
  int (*wait)(Request*, Status);
  int (*cancel)(Request*);
  int (*error_string)(int, char*, int*);
  ompi_communicator_t* world;
  ompi_datatype_t* byte;
  ompi_errhandler_t* errors_return;
  Communicator own = nullptr;  // a duplicate, separate from all other messages
};

MpiTransport::MpiTransport() : library_(std::make_unique<Library>()) {
  int provided = 0;
  check("MPI_Init_thread", library_->init_thread(nullptr, nullptr, kThreadSerialized, &provided));
  require<NotSupported>(
      provided >= kThreadSerialized,
      "This Open MPI was built without threads. Install one with support for threads (MPI_THREAD_SERIALIZED).");
  check("MPI_Comm_dup", library_->comm_dup(library_->world, &library_->own));
  check("MPI_Comm_set_errhandler", library_->comm_set_errhandler(library_->own, library_->errors_return));
  check("MPI_Comm_rank", library_->comm_rank(library_->own, &rank_));
  check("MPI_Comm_size", library_->comm_size(library_->own, &size_));
}

/// The library stays loaded: Open MPI leaves threads and exit handlers behind.
MpiTransport::~MpiTransport() = default;

void MpiTransport::check(const char* call, int status) const {
  if (status == 0) return;
  std::array<char, kMaxErrorString> text{};
  int length = 0;
  library_->error_string(status, text.data(), &length);
  throw CommError(
      fmt::format("Open MPI failed in {}: {}", call, std::string_view(text.data(), static_cast<size_t>(length))));
}

MpiTransport::Request MpiTransport::send(int rank, int tag, const void* data, size_t bytes) const {
  Request request = nullptr;
  check("MPI_Isend",
        library_->isend(data, static_cast<int>(bytes), library_->byte, rank, tag, library_->own, &request));
  return request;
}

MpiTransport::Request MpiTransport::synchronous_send(int rank, int tag, const void* data, size_t bytes) const {
  Request request = nullptr;
  check("MPI_Issend",
        library_->issend(data, static_cast<int>(bytes), library_->byte, rank, tag, library_->own, &request));
  return request;
}

MpiTransport::Request MpiTransport::receive(int rank, int tag, void* data, size_t bytes) const {
  Request request = nullptr;
  check("MPI_Irecv",
        library_->irecv(data, static_cast<int>(bytes), library_->byte, rank, tag, library_->own, &request));
  return request;
}

MpiTransport::Request MpiTransport::receive_from_any(int tag, void* data, size_t bytes) const {
  return receive(kAnySource, tag, data, bytes);
}

bool MpiTransport::test(Request& request) const {
  if (!request) return true;
  int is_done = 0;
  check("MPI_Test", library_->test(&request, &is_done, nullptr));
  if (is_done) request = nullptr;
  return is_done != 0;
}

void MpiTransport::cancel(Request& request) const {
  if (!request) return;
  check("MPI_Cancel", library_->cancel(&request));
  check("MPI_Wait", library_->wait(&request, nullptr));
  request = nullptr;
}

void MpiTransport::finish() {
  if (!std::exchange(is_finished_, true)) check("MPI_Finalize", library_->finalize());
}

void MpiTransport::end_all(int exit_status) const noexcept {
  if (!is_finished_) library_->abort(library_->world, exit_status);
  _exit(exit_status);
}

}  // namespace megatron
