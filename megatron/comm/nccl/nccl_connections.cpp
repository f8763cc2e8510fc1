#include "megatron/comm/nccl/nccl_connections.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "megatron/base/word_list.h"
#include "megatron/comm/blocked_operation.h"
#include "megatron/comm/longest_timeout.h"

namespace megatron {

void NcclConnections::end_turn(const NcclLane::Facts& lane) {
  turns_.end(lane.name);
  flights_.changed.notify_all();
}

std::unique_ptr<NcclCommunicator> NcclConnections::make_communicator(const NcclLane::Facts& lane,
                                                                     int max_multiprocessors) const {
  const auto place = static_cast<int>(std::ranges::find(lane.members, meeting_.rank()) - lane.members.begin());
  const std::string id_key = lane.name + ".id";
  NcclLibrary::UniqueId id{};
  if (place == 0) {
    id = library_.get_unique_id();
    meeting_.store().set(id_key, {id.bytes.data(), id.bytes.size()});
  } else {
    const std::string text = meeting_.wait_for(id_key, lane.name, lane.members[0], kLongestTimeout);
    require<CommError>(text.size() == id.bytes.size(), "[NcclConnections] an id of {} bytes", text.size());
    std::memcpy(id.bytes.data(), text.data(), text.size());
  }
  return NcclCommunicator::make(library_, static_cast<int>(lane.members.size()), id, place,
                                {timeout_, [this] { meeting_.throw_if_failed(); }}, max_multiprocessors);
}

void NcclConnections::await_all() {
  const auto is_not_connected = [](const NcclLane* lane) { return !lane->is_connected_ || !lane->waiting_.empty(); };
  std::string missing;
  {
    std::unique_lock lock(flights_.mutex);
    const std::set<NcclLane*>& lanes = flights_.lanes;
    const auto is_over = [&] {
      return meeting_.has_failed() || std::none_of(lanes.begin(), lanes.end(), is_not_connected);
    };
    if (!flights_.changed.wait_for(lock, std::min(timeout_, kLongestTimeout), is_over)) {
      const NcclLane::Facts& lane = (*std::find_if(lanes.begin(), lanes.end(), is_not_connected))->facts();
      missing = fmt::format("{} of [{}]", describe_ranks(lane.members), lane.group);
    }
  }
  if (!missing.empty())
    meeting_.fail(
        fmt::format("the beginning of a step timed out after {} ms: rank {} waits for a connection between {}",
                    timeout_.count(), meeting_.rank(), missing));
  meeting_.throw_if_failed();
}

void NcclConnections::meet_at_end(const NcclLane::Facts& lane) {
  meeting_.count_to(std::ssize(lane.members), lane.name + ".end", fmt::format("the end of [{}]", lane.group), timeout_);
}

std::string NcclConnections::transports() const {
  std::set<std::string> lines;
  const std::lock_guard lock(flights_.mutex);
  for (const NcclLane* lane : flights_.lanes)
    if (!lane->connection_.transport.empty()) lines.insert(lane->connection_.transport);
  return joined(lines, "\n");
}

}  // namespace megatron
