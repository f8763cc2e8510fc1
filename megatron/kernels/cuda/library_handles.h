// Handles and caches of several libraries in the one slot that a CUDA stream has for them.
#pragma once

#include <memory>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/core/cuda_stream.h"

namespace megatron::kernels {

/// At most one object of each type. Not safe for several threads, as the stream is not.
class CudaLibraries final : public LibraryHandles {
 public:
  template <class Handles>
  Handles& get() {
    for (const std::unique_ptr<LibraryHandles>& handles : handles_)
      if (auto* found = dynamic_cast<Handles*>(handles.get())) return *found;
    auto made = std::make_unique<Handles>();
    Handles& result = *made;
    handles_.push_back(std::move(made));
    return result;
  }

 private:
  std::vector<std::unique_ptr<LibraryHandles>> handles_;
};

/// The stream's object of type Handles, made on first use.
template <class Handles>
Handles& library_handles(const CudaStream& stream) {
  require<InternalError>(stream.libraries != nullptr, "[cuda] the stream has no slot for library handles.");
  if (!*stream.libraries) *stream.libraries = std::make_unique<CudaLibraries>();
  auto* libraries = dynamic_cast<CudaLibraries*>(stream.libraries->get());
  require<InternalError>(libraries != nullptr, "[cuda] the slot for library handles holds those of another backend.");
  return libraries->get<Handles>();
}

}  // namespace megatron::kernels
