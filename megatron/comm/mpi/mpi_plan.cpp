#include "megatron/comm/mpi/mpi_plan.h"

#include <algorithm>

#include "megatron/comm/mpi/mpi_transport.h"

namespace megatron {
namespace {

/// Bytes of a section per piece: bounds the receive buffers, but is large enough that handshakes and waits cost little.
constexpr int64_t kPieceBytes = int64_t{1} << 20;

/// Splits a transfer so that MPI can count the bytes.
template <class Transfer, class Pointer>
void add(std::vector<Transfer>& transfers, int peer, Pointer data, int64_t bytes) {
  for (auto left = static_cast<size_t>(bytes); left > 0;) {
    const size_t length = std::min(left, MpiTransport::kMaxBytes);
    transfers.push_back({peer, data, length});
    data += length;
    left -= length;
  }
}

/// The receive buffer for data of `rank` before the reduction; the rank's own data has none.
size_t scratch_slot(MpiPlace place, int rank) { return static_cast<size_t>(rank < place.rank ? rank : rank - 1); }

/// Elements [begin, end) of a buffer.
struct Section {
  int64_t begin, end;
  int64_t size() const { return end - begin; }
  /// Piece number `index`; empty beyond the end.
  Section piece(int64_t index, int64_t length) const {
    const int64_t first = std::min(end, begin + index * length);
    return {first, std::min(end, first + length)};
  }
};

struct Reduction {
  MpiPlace place;
  int64_t element_bytes;
  int64_t piece_elements;
  MpiPlan plan;

  Reduction(MpiPlace in, const OperationKey& key, int64_t longest_section)
      : place(in),
        element_bytes(size_of(key.dtype)),
        piece_elements(std::max<int64_t>(1, std::min(longest_section, kPieceBytes / size_of(key.dtype)))) {
    plan.scratch = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(place.size - 1) * slot_bytes());
  }
  size_t slot_bytes() const { return static_cast<size_t>(piece_elements * element_bytes); }

  /// A round in which pieces[k] of `input` goes to rank k, and the sum of all ranks' own piece to `output`.
  void add_round(const std::byte* input, const std::vector<Section>& pieces, std::byte* output) {
    MpiRound round;
    const Section own = pieces[static_cast<size_t>(place.rank)];
    for (int rank = 0; rank < place.size; ++rank) {
      const Section piece = pieces[static_cast<size_t>(rank)];
      const std::byte* own_input = input + own.begin * element_bytes;
      if (rank == place.rank) {
        round.inputs.push_back(own_input);
        continue;
      }
      std::byte* slot = plan.scratch.get() + scratch_slot(place, rank) * slot_bytes();
      add(round.sends, rank, input + piece.begin * element_bytes, piece.size() * element_bytes);
      add(round.receives, rank, slot, own.size() * element_bytes);
      round.inputs.push_back(slot);
    }
    round.output = output;
    round.num_elements = own.size();
    plan.rounds.push_back(std::move(round));
  }
};

/// A round in which the pieces of `buffer` go from their owners to everyone.
MpiRound share(MpiPlace place, int64_t element_bytes, std::byte* buffer, const std::vector<Section>& pieces) {
  MpiRound round;
  const Section own = pieces[static_cast<size_t>(place.rank)];
  for (int rank = 0; rank < place.size; ++rank) {
    if (rank == place.rank) continue;
    const Section piece = pieces[static_cast<size_t>(rank)];
    add(round.sends, rank, buffer + own.begin * element_bytes, own.size() * element_bytes);
    add(round.receives, rank, buffer + piece.begin * element_bytes, piece.size() * element_bytes);
  }
  return round;
}

std::vector<Section> pieces_of(const std::vector<Section>& sections, int64_t index, int64_t length) {
  std::vector<Section> pieces;
  for (const Section& section : sections) pieces.push_back(section.piece(index, length));
  return pieces;
}

}  // namespace

MpiPlan plan_all_reduce(MpiPlace place, const OperationKey& key, std::byte* buffer) {
  const int64_t size = key.num_elements;
  if (key.bytes() <= static_cast<int64_t>(kMaxMpiGreetingBytes)) {
    Reduction reduction(place, key, size);
    reduction.add_round(buffer, std::vector<Section>(static_cast<size_t>(place.size), {0, size}), buffer);
    return std::move(reduction.plan);
  }
  std::vector<Section> sections;
  for (int64_t rank = 0; rank < place.size; ++rank)
    sections.push_back({size * rank / place.size, size * (rank + 1) / place.size});
  const int64_t longest = (size + place.size - 1) / place.size;
  Reduction reduction(place, key, longest);
  for (int64_t index = 0; index * reduction.piece_elements < longest; ++index) {
    const auto pieces = pieces_of(sections, index, reduction.piece_elements);
    const int64_t own = pieces[static_cast<size_t>(place.rank)].begin;
    reduction.add_round(buffer, pieces, buffer + own * reduction.element_bytes);
    reduction.plan.rounds.push_back(share(place, reduction.element_bytes, buffer, pieces));
  }
  return std::move(reduction.plan);
}

MpiPlan plan_reduce_scatter(MpiPlace place, const OperationKey& key, const std::byte* input, std::byte* output) {
  const int64_t size = key.num_elements;
  std::vector<Section> sections;
  for (int64_t rank = 0; rank < place.size; ++rank) sections.push_back({size * rank, size * (rank + 1)});
  Reduction reduction(place, key, size);
  for (int64_t index = 0; index * reduction.piece_elements < size; ++index)
    reduction.add_round(input, pieces_of(sections, index, reduction.piece_elements),
                        output + index * static_cast<int64_t>(reduction.slot_bytes()));
  return std::move(reduction.plan);
}

MpiPlan plan_all_gather(MpiPlace place, const OperationKey& key, const std::byte* input, std::byte* output) {
  const int64_t bytes = key.bytes();
  MpiPlan plan{.copy_from = input, .copy_to = output + place.rank * bytes, .copy_bytes = static_cast<size_t>(bytes)};
  MpiRound& round = plan.rounds.emplace_back();
  for (int rank = 0; rank < place.size; ++rank) {
    if (rank == place.rank) continue;
    add(round.sends, rank, input, bytes);
    add(round.receives, rank, output + rank * bytes, bytes);
  }
  return plan;
}

MpiPlan plan_all_to_all(MpiPlace place, const OperationKey& key, const std::byte* input, std::byte* output,
                        std::span<const int64_t> send_counts, std::span<const int64_t> receive_counts) {
  MpiPlan plan;
  MpiRound& round = plan.rounds.emplace_back();
  for (int rank = 0; rank < place.size; ++rank) {
    const int64_t sent = send_counts[static_cast<size_t>(rank)] * size_of(key.dtype);
    const int64_t received = receive_counts[static_cast<size_t>(rank)] * size_of(key.dtype);
    if (rank == place.rank) {
      plan.copy_from = input;
      plan.copy_to = output;
      plan.copy_bytes = static_cast<size_t>(sent);
    } else {
      add(round.sends, rank, input, sent);
      add(round.receives, rank, output, received);
    }
    input += sent;
    output += received;
  }
  return plan;
}

MpiPlan plan_broadcast(MpiPlace place, const OperationKey& key, std::byte* buffer) {
  MpiPlan plan;
  MpiRound& round = plan.rounds.emplace_back();
  if (place.rank != key.root) add(round.receives, key.root, buffer, key.bytes());
  for (int rank = 0; rank < place.size; ++rank)
    if (place.rank == key.root && rank != key.root) add(round.sends, rank, buffer, key.bytes());
  return plan;
}

MpiPlan plan_send(int peer, const OperationKey& key, const std::byte* input) {
  MpiPlan plan;
  add(plan.rounds.emplace_back().sends, peer, input, key.bytes());
  return plan;
}

MpiPlan plan_receive(int peer, const OperationKey& key, std::byte* output) {
  MpiPlan plan;
  add(plan.rounds.emplace_back().receives, peer, output, key.bytes());
  return plan;
}

}  // namespace megatron
