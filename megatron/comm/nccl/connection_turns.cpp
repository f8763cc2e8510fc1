#include "megatron/comm/nccl/connection_turns.h"

#include <algorithm>

#include "megatron/comm/longest_timeout.h"
#include "megatron/comm/nccl/poll.h"
#include "megatron/comm/nccl/store_meeting.h"

namespace megatron {
namespace {

/// Keys of the store.
constexpr std::string_view kNumTickets = "tickets";
std::string there_key(const std::string& lane) { return lane + ".there"; }

}  // namespace

/// A lane whose members have all arrived may have a smaller ticket that this process has not seen yet; one that
/// completes later has a larger ticket.
bool ConnectionTurns::comes_before(const std::string& name, const Connecting& other, int64_t ticket) {
  return other.ticket == 0 ? meeting_.store().add(there_key(name), 0) == static_cast<int64_t>(other.num_members)
                           : other.ticket < ticket;
}

void ConnectionTurns::await(const std::string& lane, const std::vector<int>& members) {
  {
    const std::lock_guard lock(mutex_);
    connecting_[lane] = {.num_members = members.size()};
  }
  const std::string ticket_key = lane + ".ticket";
  if (meeting_.store().add(there_key(lane), 1) == std::ssize(members))
    meeting_.store().set(ticket_key, std::to_string(meeting_.store().add(kNumTickets, 1)));
  const int peer = members[members[0] == meeting_.rank() ? 1 : 0];
  const int64_t ticket = std::stoll(meeting_.wait_for(ticket_key, lane, peer, kLongestTimeout));
  const auto is_next = [&] {
    std::map<std::string, Connecting> connecting;
    {
      const std::lock_guard lock(mutex_);
      connecting_[lane].ticket = ticket;
      connecting = connecting_;
    }
    return meeting_.has_failed() || std::ranges::none_of(connecting, [&](const auto& other) {
             return other.first != lane && comes_before(other.first, other.second, ticket);
           });
  };
  poll(is_next, kLongestTimeout, kLongestStorePause);
  meeting_.throw_if_failed();
}

void ConnectionTurns::end(const std::string& lane) {
  const std::lock_guard lock(mutex_);
  connecting_.erase(lane);
}

}  // namespace megatron
