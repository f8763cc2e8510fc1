#include "megatron/dist_checkpointing/tensor_source.h"

#include <algorithm>
#include <cstring>

#include "megatron/base/error.h"
#include "megatron/core/box.h"

namespace megatron {
namespace {

class OwnedSource final : public TensorSource {
 public:
  explicit OwnedSource(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}
  int64_t bytes() const override { return static_cast<int64_t>(bytes_.size()); }
  std::span<const std::byte> read(int64_t begin, int64_t count) override {
    return std::span(bytes_).subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
  }

 private:
  std::vector<std::byte> bytes_;
};

class ViewSource final : public TensorSource {
 public:
  explicit ViewSource(const ConstView& host) : host_(host) {}
  int64_t bytes() const override { return host_.num_elements() * size_of(host_.dtype); }
  std::span<const std::byte> read(int64_t begin, int64_t count) override {
    if (!host_.is_contiguous() && gathered_.empty()) gathered_ = gather(host_);
    const auto* data = host_.is_contiguous() ? static_cast<const std::byte*>(host_.data) : gathered_.data();
    return {data + begin, static_cast<size_t>(count)};
  }

 private:
  ConstView host_;
  std::vector<std::byte> gathered_;  // only for strided memory
};

class StagedSource final : public TensorSource {
 public:
  StagedSource(std::span<const std::byte> host, std::stop_token stop) : host_(host), stop_(std::move(stop)) {}
  int64_t bytes() const override { return static_cast<int64_t>(host_.size()); }
  std::span<const std::byte> read(int64_t begin, int64_t count) override {
    require<Error>(!stop_.stop_requested(), "[checkpoint] the save was given up before its files were written");
    return host_.subspan(static_cast<size_t>(begin), static_cast<size_t>(count));
  }

 private:
  std::span<const std::byte> host_;
  std::stop_token stop_;
};

}  // namespace

TensorSource::~TensorSource() = default;

void TensorSource::copy_to(std::span<std::byte> out) {
  constexpr int64_t kPieceBytes = 4 << 20;
  for (int64_t begin = 0; begin < bytes(); begin += kPieceBytes)
    std::ranges::copy(read(begin, std::min(kPieceBytes, bytes() - begin)), out.begin() + begin);
}

std::unique_ptr<TensorSource> make_view_source(const ConstView& host) { return std::make_unique<ViewSource>(host); }
std::unique_ptr<TensorSource> make_owned_source(std::vector<std::byte> bytes) {
  return std::make_unique<OwnedSource>(std::move(bytes));
}
std::unique_ptr<TensorSource> make_staged_source(std::span<const std::byte> host, std::stop_token stop) {
  return std::make_unique<StagedSource>(host, std::move(stop));
}

std::vector<std::byte> gather(const ConstView& host) {
  const int64_t element_bytes = size_of(host.dtype);
  std::vector<std::byte> bytes(static_cast<size_t>(host.num_elements() * element_bytes));
  const auto* data = static_cast<const std::byte*>(host.data);
  for_each_run(host.shape, host.strides, host.shape.contiguous_strides(), [&](int64_t from, int64_t to, int64_t count) {
    std::memcpy(bytes.data() + to * element_bytes, data + from * element_bytes,
                static_cast<size_t>(count * element_bytes));
  });
  return bytes;
}

}  // namespace megatron
