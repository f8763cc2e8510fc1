#include "megatron/dist_checkpointing/generator_states.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {
namespace {

// MT19937. Source: Matsumoto & Nishimura 2002, mt19937ar.c, init_genrand and init_by_array.
constexpr size_t kNumWords = 624;
using TwisterState = std::array<uint32_t, kNumWords>;

TwisterState seeded(uint32_t seed) {
  TwisterState state{seed};
  for (uint32_t i = 1; i < kNumWords; ++i) state[i] = 1812433253U * (state[i - 1] ^ (state[i - 1] >> 30)) + i;
  return state;
}

/// With a key of one word.
TwisterState seeded_by_array(uint32_t key) {
  constexpr uint32_t kBase = 19650218;
  TwisterState state = seeded(kBase);
  size_t i = 1;
  const auto advance = [&] {
    if (++i < kNumWords) return;
    state[0] = state[kNumWords - 1];
    i = 1;
  };
  const auto mixed = [&] { return state[i - 1] ^ (state[i - 1] >> 30); };
  for (size_t k = 0; k < kNumWords; ++k, advance()) state[i] = (state[i] ^ (mixed() * 1664525U)) + key;
  for (size_t k = 1; k < kNumWords; ++k, advance())
    state[i] = (state[i] ^ (mixed() * 1566083941U)) - static_cast<uint32_t>(i);
  state[0] = 0x80000000U;
  return state;
}

std::vector<pickle::Object*> integers(pickle::Graph& graph, const TwisterState& state) {
  std::vector<pickle::Object*> words;
  for (const uint32_t word : state) words.push_back(&graph.integer(word));
  return words;
}

/// The memory of at::CPUGeneratorImplState on a little-endian machine of 64 bits.
struct TorchCpuState {
  uint64_t seed;
  int32_t num_left = 1;  // words until the next twist
  int32_t is_seeded = 1;
  uint64_t next = 0;
  std::array<uint64_t, kNumWords> words;
  std::array<uint64_t, 5> normal_samples{};  // none is held back
};
static_assert(sizeof(TorchCpuState) == 5056);

template <class State>
pickle::Object& byte_tensor(TorchObject& object, const State& state) {
  std::array<uint8_t, sizeof(State)> bytes;
  std::memcpy(bytes.data(), &state, sizeof(State));
  return object.add_tensor(ConstView{bytes.data(), DType::kUInt8, {static_cast<int64_t>(bytes.size())}, {1}});
}

}  // namespace

pickle::Object& python_generator_state(pickle::Graph& graph, uint32_t seed) {
  constexpr int64_t kVersion = 3;
  std::vector<pickle::Object*> words = integers(graph, seeded_by_array(seed));
  words.push_back(&graph.integer(kNumWords));  // position
  return graph.tuple({&graph.integer(kVersion), &graph.tuple(std::move(words)), &graph.none()});
}

pickle::Object& numpy_generator_state(pickle::Graph& graph, uint32_t seed) {
  return graph.tuple({&graph.text("MT19937"), &graph.tuple(integers(graph, seeded(seed))), &graph.integer(kNumWords),
                      &graph.integer(0), &graph.real(0.0)});
}

pickle::Object& torch_cpu_generator_state(TorchObject& object, uint64_t seed) {
  TorchCpuState state{.seed = seed, .words = {}};
  const TwisterState words = seeded(static_cast<uint32_t>(seed));
  std::copy(words.begin(), words.end(), state.words.begin());
  return byte_tensor(object, state);
}

pickle::Object& torch_cuda_generator_state(TorchObject& object, uint64_t seed, uint64_t offset) {
  require(offset % 4 == 0, "[checkpoint] a Philox generator has no offset {}: it draws four numbers at a time", offset);
  return byte_tensor(object, std::array<uint64_t, 2>{seed, offset});
}

}  // namespace megatron
