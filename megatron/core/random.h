// Stateless randomness: a value is a function of (seed, path, global index), never of rank, layout or order of calls.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "megatron/core/box_muller.h"

namespace megatron {

/// Philox 4x32 with 10 rounds (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3").
constexpr std::array<uint32_t, 4> philox(uint64_t key, std::array<uint32_t, 4> c) {
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53u} * c[0], p1 = uint64_t{0xCD9E8D57u} * c[2];
    c = {static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0, static_cast<uint32_t>(p1),
         static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1, static_cast<uint32_t>(p0)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

/// Names a stream of random numbers. Derive one per (seed, module path, named draw).
struct RandomKey {
  uint64_t value = 0;

  static RandomKey from_seed(uint64_t seed) { return {mix(seed)}; }
  /// The key of something named below this one: `key.at("decoder.layers.3.mlp").at("dropout")`.
  constexpr RandomKey at(std::string_view path) const {
    uint64_t key = value;
    for (char c : path) key = mix(key ^ static_cast<uint8_t>(c));
    return {mix(key ^ path.size())};
  }
  constexpr RandomKey at(int64_t index) const { return {mix(mix(value) ^ static_cast<uint64_t>(index))}; }

  /// splitmix64's finaliser (Steele, Lea, Flood 2014).
  static constexpr uint64_t mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
  }
};

/// Four draws for features 4*block .. 4*block+3 of one row of one step: the layout of every dropout mask.
/// `row` is the global row (sample and position), `step` the training step.
constexpr std::array<uint32_t, 4> draw4(RandomKey key, int64_t step, int64_t row, int64_t block) {
  return philox(key.value, {static_cast<uint32_t>(block), static_cast<uint32_t>(row), static_cast<uint32_t>(row >> 32),
                            static_cast<uint32_t>(step)});
}
/// One draw of the same layout.
constexpr uint32_t draw(RandomKey key, int64_t step, int64_t row, int64_t feature) {
  return draw4(key, step, row, feature / 4)[static_cast<size_t>(feature % 4)];
}
/// A value is dropped when its draw is below this.
constexpr uint32_t dropout_threshold(double rate) { return static_cast<uint32_t>(rate * 4294967296.0); }

/// The draws of block number `index` of something that has no steps.
constexpr std::array<uint32_t, 4> draw4(RandomKey key, int64_t index) {
  return philox(key.value, {static_cast<uint32_t>(index), static_cast<uint32_t>(index >> 32), 0, 0});
}
/// Standard normal numbers of global elements 4*block .. 4*block+3.
inline std::array<double, 4> normal4(RandomKey key, int64_t block) {
  const auto r = draw4(key, block);
  const NormalPair a = box_muller(r[0], r[1]), b = box_muller(r[2], r[3]);
  return {a.first, a.second, b.first, b.second};
}
/// Standard normal number of global element `index`.
inline double normal(RandomKey key, int64_t index) { return normal4(key, index / 4)[static_cast<size_t>(index % 4)]; }
/// Uniform in [0, 1) of global element `index`, 53 bits.
double uniform(RandomKey key, int64_t index);

}  // namespace megatron
