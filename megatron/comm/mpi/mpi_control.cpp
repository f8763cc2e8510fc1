#include "megatron/comm/mpi/mpi_control.h"

#include <algorithm>
#include <type_traits>

namespace megatron {
namespace {

static_assert(std::is_trivially_copyable_v<MpiControlMessage> && sizeof(MpiControlMessage) < 3584);

constexpr int kControlTag = 0;  // operations use tags whose last two bits are not zero

}  // namespace

MpiControlMessage MpiControlMessage::make(Kind kind, std::string_view text) {
  MpiControlMessage message;
  message.kind = kind;
  message.text_length = static_cast<int32_t>(text.copy(message.text_bytes.data(), kMaxText));
  return message;
}

void MpiControlMessage::set_missing(const std::vector<int>& ranks) {
  num_missing = static_cast<int32_t>(std::min(ranks.size(), kMaxMissing));
  std::copy_n(ranks.begin(), num_missing, missing.begin());
}

MpiControl::MpiControl(const MpiTransport& transport) : transport_(transport) { listen(); }

void MpiControl::listen() { receiving_ = transport_.receive_from_any(kControlTag, incoming_.get(), sizeof *incoming_); }

void MpiControl::send(int rank, MpiControlMessage message) {
  message.sender = transport_.rank();
  auto owned = std::make_unique<MpiControlMessage>(message);
  const auto request = transport_.send(rank, kControlTag, owned.get(), sizeof *owned);
  sending_.push_back({std::move(owned), request});
}

void MpiControl::send_to_all_others(const MpiControlMessage& message) {
  for (int rank = 0; rank < transport_.size(); ++rank)
    if (rank != transport_.rank()) send(rank, message);
}

std::optional<MpiControlMessage> MpiControl::poll() {
  std::erase_if(sending_, [&](Sending& sending) { return transport_.test(sending.request); });
  if (!transport_.test(receiving_)) return std::nullopt;
  const MpiControlMessage message = *incoming_;
  listen();
  return message;
}

void MpiControl::close() { transport_.cancel(receiving_); }

}  // namespace megatron
