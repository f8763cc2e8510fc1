#include "megatron/training/checkpoint/device_tensor_source.h"

#include <utility>
#include <vector>

#include "megatron/core/copy.h"
#include "megatron/kernels/elementwise.h"

namespace megatron {
namespace {

class DeviceSource final : public TensorSource {
 public:
  DeviceSource(const Context& ctx, std::function<Tensor()> tensor, DType dtype, const CheckpointChunk& chunk)
      : ctx_(ctx), make_(std::move(tensor)), dtype_(dtype), chunk_(chunk) {}
  int64_t bytes() const override { return chunk_.sizes.num_elements() * size_of(dtype_); }
  std::span<const std::byte> read(int64_t begin, int64_t count) override {
    if (!tensor_.defined()) open();
    piece_.resize(static_cast<size_t>(count));
    copy_to_host(ctx_.device, static_cast<const std::byte*>(part_.data) + begin, piece_);
    if (begin + count == bytes()) tensor_ = Tensor();
    return piece_;
  }
  /// Without the piece in between.
  void copy_to(std::span<std::byte> out) override {
    open();
    copy_to_host(ctx_.device, part_.data, out);
    tensor_ = Tensor();
  }

 private:
  void open() {
    tensor_ = make_();
    part_ = {std::as_const(tensor_).view().data, dtype_, chunk_.sizes, chunk_.strides};
    const auto* data = static_cast<const std::byte*>(part_.data);
    if (data) part_.data = data + chunk_.first * size_of(dtype_);
    if (!part_.is_contiguous()) gather();
  }
  /// Moves the part to memory without gaps.
  void gather() {
    Tensor gathered = ctx_.empty("checkpoint.gathered", part_.shape, dtype_, MemoryUse::kWorkspace);
    launch(ctx_, {.name = "copy"}, [&](auto& stream) { kernels::copy(stream, {.x = part_, .y = gathered.view()}); });
    tensor_ = std::move(gathered);
    part_ = std::as_const(tensor_).view();
  }

  Context ctx_;
  std::function<Tensor()> make_;
  DType dtype_;
  CheckpointChunk chunk_;
  Tensor tensor_;  // while it is read
  ConstView part_;
  std::vector<std::byte> piece_;
};

}  // namespace

std::unique_ptr<TensorSource> make_device_source(const Context& ctx, std::function<Tensor()> tensor, DType dtype,
                                                 const CheckpointChunk& chunk) {
  return std::make_unique<DeviceSource>(ctx, std::move(tensor), dtype, chunk);
}

}  // namespace megatron
