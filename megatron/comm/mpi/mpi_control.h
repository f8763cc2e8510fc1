// Control messages between processes: failures, waits and shutdown.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megatron/comm/mpi/mpi_transport.h"

namespace megatron {

/// Sent in its memory representation.
struct MpiControlMessage {
  /// kLeft: has ended, but still drives operations of others; kGone: knows that all have ended, and sends nothing from
  /// now on
  enum class Kind : int32_t { kFailed, kQuery, kReport, kLeft, kGone };
  static constexpr size_t kMaxText = 2800;  // the whole below 4 KiB, which Open MPI sends without a handshake
  static constexpr size_t kMaxMissing = 128;

  Kind kind = Kind::kLeft;
  int32_t sender = 0;
  int64_t query = 0;        // number of the sender's kQuery, repeated in the kReport
  uint64_t group_hash = 0;  // kReport: group of the operation in which it waits
  int32_t is_blocked = 0;   // kReport: the rank waits in the operation `text` for `missing`
  int32_t num_missing = 0;  // as many as fit
  std::array<int32_t, kMaxMissing> missing{};
  int32_t text_length = 0;
  std::array<char, kMaxText> text_bytes{};

  static MpiControlMessage make(Kind kind, std::string_view text);
  void set_missing(const std::vector<int>& ranks);
  std::vector<int> missing_ranks() const { return {missing.begin(), missing.begin() + num_missing}; }
  std::string text() const { return {text_bytes.data(), static_cast<size_t>(text_length)}; }
};

/// The channel of control messages, separate from all groups. Not thread-safe: the hub guards it.
class MpiControl {
 public:
  explicit MpiControl(const MpiTransport& transport);

  void send(int rank, MpiControlMessage message);
  void send_to_all_others(const MpiControlMessage& message);
  /// The next message that has arrived. Also frees messages that have been sent.
  std::optional<MpiControlMessage> poll();
  bool has_unsent() const { return !sending_.empty(); }
  /// Closes the channel. No message to this rank may be in flight.
  void close();

 private:
  struct Sending {
    std::unique_ptr<MpiControlMessage> message;
    MpiTransport::Request request;
  };
  void listen();

  const MpiTransport& transport_;
  std::deque<Sending> sending_;
  std::unique_ptr<MpiControlMessage> incoming_ = std::make_unique<MpiControlMessage>();
  MpiTransport::Request receiving_ = nullptr;
};

}  // namespace megatron
