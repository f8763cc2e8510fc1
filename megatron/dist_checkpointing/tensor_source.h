// The source of a tensor's bytes for the writer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <stop_token>
#include <vector>

#include "megatron/core/view.h"

namespace megatron {

/// The elements of a tensor in row-major order, handed out piece by piece. Implement it for tensors that are not plain
/// host memory: a device tensor copies each piece to a small staging buffer, so that a save needs no second copy of the
/// model. The writer asks for consecutive pieces, each once; different sources may be read on different threads.
class TensorSource {
 public:
  virtual ~TensorSource();
  virtual int64_t bytes() const = 0;
  /// Bytes [begin, begin + count), valid until the next call.
  virtual std::span<const std::byte> read(int64_t begin, int64_t count) = 0;
  /// Loads what read() will hand out. ReadAhead calls it, on a thread of its own.
  virtual void prepare() {}
  /// Nothing more is read: frees what was loaded. The writers call it after the last piece.
  virtual void release() {}
  /// All of it at once, into `out`, which has bytes(). Instead of read().
  virtual void copy_to(std::span<std::byte> out);
};

/// Host memory that the caller keeps until the file is written; any strides.
std::unique_ptr<TensorSource> make_view_source(const ConstView& host);
/// Bytes of its own.
std::unique_ptr<TensorSource> make_owned_source(std::vector<std::byte> bytes);
/// Host memory that another thread may be writing to a file. @throw Error from read() once a stop is requested.
std::unique_ptr<TensorSource> make_staged_source(std::span<const std::byte> host, std::stop_token stop);

/// A tensor in host memory as contiguous bytes.
std::vector<std::byte> gather(const ConstView& host);

}  // namespace megatron
