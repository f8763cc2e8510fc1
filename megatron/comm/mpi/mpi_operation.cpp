#include "megatron/comm/mpi/mpi_operation.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <type_traits>

#include "megatron/base/error.h"
#include "megatron/comm/reduce.h"

namespace megatron {
namespace {

static_assert(std::is_trivially_copyable_v<MpiGreeting>);

// An MPI tag is (split, tag of the send, kind of content); collectives use the tag above those of sends.
constexpr int kCarrierBits = 2, kMessageTagBits = 12;
constexpr int kCollectiveTag = (1 << kMessageTagBits) - 1;
constexpr int kMaxSplit = MpiTransport::kMaxTag >> (kCarrierBits + kMessageTagBits);

bool is_message(CommOp op) { return op == CommOp::kSend || op == CommOp::kReceive; }

/// The only transfer with a member, if it is small; it is sent with the handshake.
template <class Transfer>
const Transfer* find_small(const std::vector<Transfer>& transfers, int member) {
  const auto is_own = [&](const Transfer& transfer) { return transfer.peer == member; };
  const auto first = std::find_if(transfers.begin(), transfers.end(), is_own);
  if (first == transfers.end() || first->bytes > kMaxMpiGreetingBytes) return nullptr;
  return std::find_if(first + 1, transfers.end(), is_own) == transfers.end() ? &*first : nullptr;
}

MpiGreeting read_greeting(const std::vector<std::byte>& bytes) {
  MpiGreeting greeting;
  std::memcpy(static_cast<void*>(&greeting), bytes.data(), sizeof greeting);
  return greeting;
}

}  // namespace

MpiOperation::MpiOperation(const MpiGroupFacts& facts, Call call, MpiPlan plan)
    : facts_(facts), call_(std::move(call)), plan_(std::move(plan)) {
  require<ConfigError>(facts_.split <= kMaxSplit, "[{}] is made by split {}; at most {} are possible between processes",
                       facts_.name, facts_.split, kMaxSplit);
  if (is_message(call_.op))
    require<ConfigError>(call_.key.root >= 0 && call_.key.root < kCollectiveTag,
                         "[{} on {}] tag {} is not from 0 to {}, the tags between processes", name_of(call_.op),
                         facts_.name, call_.key.root, kCollectiveTag - 1);
  for (int member = 0; member < static_cast<int>(facts_.ranks.size()); ++member)
    if (call_.peer < 0 ? member != facts_.own : member == call_.peer) peers_.emplace_back().member = member;
}

int MpiOperation::tag(bool is_greeting) const {
  const int own = is_message(call_.op) ? call_.key.root : kCollectiveTag;
  return (((facts_.split << kMessageTagBits) | own) << kCarrierBits) | (is_greeting ? 1 : 2);
}

void MpiOperation::advance(const MpiTransport& transport) {
  if (!has_started_) start(transport);
  if (!is_ready_) meet(transport);
  if (is_ready_ && !is_done_) move(transport);
}

void MpiOperation::start(const MpiTransport& transport) {
  has_started_ = true;
  if (plan_.copy_bytes > 0 && plan_.copy_from != plan_.copy_to)
    std::memcpy(plan_.copy_to, plan_.copy_from, plan_.copy_bytes);
  for (Peer& peer : peers_) {
    if (receives_greetings()) {
      peer.incoming.resize(sizeof(MpiGreeting) + kMaxMpiGreetingBytes);
      peer.receiving =
          transport.receive(global_rank(peer.member), tag(true), peer.incoming.data(), peer.incoming.size());
    }
    if (sends_greetings()) greet(transport, peer);
  }
  if (call_.op == CommOp::kSend) begin_round(transport);  // after its handshake, before that of the next send
}

void MpiOperation::greet(const MpiTransport& transport, Peer& peer) {
  MpiGreeting greeting{
      .group_hash = facts_.hash, .key = call_.key, .op = call_.op, .site = call_.site, .sequence = call_.sequence};
  facts_.name.copy(greeting.group_name.data(), greeting.group_name.size() - 1);
  if (call_.op == CommOp::kAllToAll) greeting.num_sent = call_.send_counts[static_cast<size_t>(peer.member)];
  const MpiSend* payload = plan_.rounds.empty() ? nullptr : find_small(plan_.rounds[0].sends, peer.member);
  if (payload) greeting.payload_bytes = payload->bytes;
  peer.outgoing.resize(sizeof greeting + greeting.payload_bytes);
  std::memcpy(peer.outgoing.data(), static_cast<const void*>(&greeting), sizeof greeting);
  if (payload) std::memcpy(peer.outgoing.data() + sizeof greeting, payload->data, payload->bytes);
  const int rank = global_rank(peer.member);
  peer.sending = call_.op == CommOp::kSend
                     ? transport.synchronous_send(rank, tag(true), peer.outgoing.data(), peer.outgoing.size())
                     : transport.send(rank, tag(true), peer.outgoing.data(), peer.outgoing.size());
}

void MpiOperation::meet(const MpiTransport& transport) {
  bool all_have_come = true;
  for (Peer& peer : peers_) {
    if (peer.has_come) continue;
    peer.has_come = transport.test(receives_greetings() ? peer.receiving : peer.sending);
    all_have_come = all_have_come && peer.has_come;
    if (!peer.has_come || !receives_greetings()) continue;
    check(peer);
    take_payload(peer);
  }
  if (!all_have_come) return;
  is_ready_ = true;
  started_ = std::chrono::steady_clock::now();
  if (call_.op != CommOp::kSend) begin_round(transport);
}

void MpiOperation::check(const Peer& peer) const {
  const MpiGreeting greeting = read_greeting(peer.incoming);
  const int own = global_rank(facts_.own), other = global_rank(peer.member);
  const std::string_view other_group = greeting.group_name.data();
  if (greeting.group_hash != facts_.hash)
    throw CommError(describe_disagreement(static_cast<size_t>(facts_.split),
                                          {std::min(own, other), own < other ? facts_.name : other_group},
                                          {std::max(own, other), own < other ? other_group : facts_.name}));
  megatron::Call mine{own, call_.key, to_string()};
  megatron::Call theirs{other, greeting.key,
                        describe(greeting.op, greeting.sequence, greeting.site.view(), facts_.name)};
  if (greeting.key != call_.key)
    throw CommError(own < other ? describe_disagreement(facts_.name, mine, theirs)
                                : describe_disagreement(facts_.name, theirs, mine));
  if (call_.op != CommOp::kAllToAll) return;
  const int64_t expected = call_.receive_counts[static_cast<size_t>(peer.member)];
  if (greeting.num_sent != expected)
    throw CommError(fmt::format("[{}] ranks disagree in {}: rank {} sends {} elements to rank {}, which expects {}.",
                                facts_.name, to_string(), other, greeting.num_sent, own, expected));
}

void MpiOperation::take_payload(const Peer& peer) {
  const MpiReceive* payload = plan_.rounds.empty() ? nullptr : find_small(plan_.rounds[0].receives, peer.member);
  if (payload) std::memcpy(payload->data, peer.incoming.data() + sizeof(MpiGreeting), payload->bytes);
}

/// Receives are posted first, so that data arrive in their buffers.
void MpiOperation::begin_round(const MpiTransport& transport) {
  transfers_.clear();
  if (round_ == plan_.rounds.size()) return;
  const MpiRound& round = plan_.rounds[round_];
  for (const MpiReceive& receive : round.receives)
    if (round_ > 0 || !find_small(round.receives, receive.peer))
      transfers_.push_back(
          {receive.peer, transport.receive(global_rank(receive.peer), tag(false), receive.data, receive.bytes)});
  for (const MpiSend& send : round.sends)
    if (round_ > 0 || !find_small(round.sends, send.peer))
      transfers_.push_back({send.peer, transport.send(global_rank(send.peer), tag(false), send.data, send.bytes)});
}

void MpiOperation::move(const MpiTransport& transport) {
  while (round_ < plan_.rounds.size()) {
    for (Transfer& transfer : transfers_)
      if (!transport.test(transfer.request)) return;
    const MpiRound& round = plan_.rounds[round_];
    void* const output = round.output;
    if (!round.inputs.empty())
      reduce_in_rank_order(call_.key.dtype, call_.key.reduce, round.inputs, {&output, 1}, round.num_elements);
    ++round_;
    begin_round(transport);
  }
  for (Peer& peer : peers_)
    if (!transport.test(peer.sending)) return;
  is_done_ = true;
  ended_ = std::chrono::steady_clock::now();
}

std::vector<int> MpiOperation::missing_ranks() const {
  std::set<int> ranks;
  const auto add = [&](int member) { ranks.insert(global_rank(member)); };
  for (const Peer& peer : peers_)
    if (!peer.has_come) add(peer.member);
  if (is_ready_) {
    for (const Transfer& transfer : transfers_)
      if (transfer.request) add(transfer.member);
    for (const Peer& peer : peers_)
      if (peer.sending) add(peer.member);
  }
  return {ranks.begin(), ranks.end()};
}

std::string MpiOperation::to_string() const {
  return describe(call_.op, call_.sequence, call_.site.view(), facts_.name);
}

}  // namespace megatron
