// Parts of a stored tensor as the input of a writer.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "megatron/dist_checkpointing/checkpoint_reader.h"
#include "megatron/dist_checkpointing/tensor_source.h"

namespace megatron {

/// Boxes of a tensor, one after the other, read from a checkpoint piece by piece as the writer asks for them.
class StoredBoxSource final : public TensorSource {
 public:
  /// @param reader  must outlive the source. @param on_bytes  told how many more bytes have been read; may be empty.
  StoredBoxSource(const CheckpointReader& reader, std::string key, std::vector<Box> boxes,
                  std::function<void(int64_t bytes)> on_bytes = {});
  int64_t bytes() const override;
  std::span<const std::byte> read(int64_t begin, int64_t count) override;

 private:
  const CheckpointReader& reader_;
  std::string key_;
  std::vector<Box> boxes_;
  std::function<void(int64_t)> on_bytes_;
  int64_t element_bytes_ = 0;
  std::vector<std::byte> piece_;
};

}  // namespace megatron
