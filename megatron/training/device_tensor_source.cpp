#include "megatron/training/device_tensor_source.h"

#include <utility>
#include <vector>

#include "megatron/core/copy.h"
#include "megatron/kernels/cuda/elementwise.h"
#include "megatron/kernels/elementwise.h"

namespace megatron {
namespace {

class DeviceSource final : public TensorSource {
 public:
  DeviceSource(const Context& ctx, Tensor tensor, const CheckpointChunk& chunk)
      : ctx_(ctx),
        tensor_(std::move(tensor)),
        part_{std::as_const(tensor_).view().data, tensor_.dtype(), chunk.sizes, chunk.strides} {
    const auto* data = static_cast<const std::byte*>(part_.data);
    if (data) part_.data = data + chunk.first * size_of(part_.dtype);
  }
  int64_t bytes() const override { return part_.num_elements() * size_of(part_.dtype); }
  std::span<const std::byte> read(int64_t begin, int64_t count) override {
    if (!part_.is_contiguous()) gather();
    piece_.resize(static_cast<size_t>(count));
    copy_to_host(ctx_.device, static_cast<const std::byte*>(part_.data) + begin, piece_);
    return piece_;
  }

 private:
  /// Moves the part to memory without gaps.
  void gather() {
    Tensor gathered = ctx_.empty("checkpoint.gathered", part_.shape, part_.dtype, MemoryUse::kWorkspace);
    launch(ctx_, [&](auto& stream) { kernels::copy(stream, {.x = part_, .y = gathered.view()}); });
    tensor_ = std::move(gathered);
    part_ = std::as_const(tensor_).view();
  }

  Context ctx_;
  Tensor tensor_;
  ConstView part_;
  std::vector<std::byte> piece_;
};

}  // namespace

std::unique_ptr<TensorSource> make_device_source(const Context& ctx, const Tensor& tensor,
                                                 const CheckpointChunk& chunk) {
  return std::make_unique<DeviceSource>(ctx, tensor, chunk);
}

}  // namespace megatron
