#include "megatron/datasets/lag_tournament.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace megatron {
namespace {

constexpr int32_t kNone = -1;
constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

}  // namespace

LagTournament::LagTournament(std::span<const double> weights, int64_t num_steps)
    : weights_(weights.begin(), weights.end()),
      taken_(weights.size(), 0),
      num_leaves_(std::bit_ceil(weights.size())),
      winner_(2 * num_leaves_, kNone),
      first_unsure_(2 * num_leaves_, kNever) {
  // A lag is the rounded difference of a rounded product and an integer, and four lags enter a decision.
  const double largest = *std::ranges::max_element(weights) * static_cast<double>(num_steps) + 2;
  margin_ = 8 * std::numeric_limits<double>::epsilon() * largest;
  for (size_t j = 0; j < weights.size(); ++j) winner_[num_leaves_ + j] = static_cast<int32_t>(j);
  for (size_t node = num_leaves_ - 1; node > 0; --node) play(node, 0);
}

double LagTournament::lag(int32_t dataset, int64_t step) const {
  const auto j = static_cast<size_t>(dataset);
  const double so_far = static_cast<double>(std::max<int64_t>(step, 1));
  return weights_[j] * so_far - static_cast<double>(taken_[j]);
}

/// Between two of one weight, rounding never changes the order, nor does time.
int64_t LagTournament::first_unsure_step(int32_t winner, int32_t loser, int64_t step) const {
  const double approach = weights_[static_cast<size_t>(loser)] - weights_[static_cast<size_t>(winner)];
  if (approach == 0) return kNever;
  const double distance = lag(winner, step) - lag(loser, step) - margin_;
  if (distance <= 0) return step + 1;
  if (approach < 0) return kNever;
  const double num_steps = distance / approach;
  constexpr double kFar = 1e15;
  return num_steps > kFar ? kNever : step + std::max<int64_t>(1, static_cast<int64_t>(num_steps));
}

void LagTournament::play(size_t node, int64_t step) {
  const size_t left = 2 * node, right = left + 1;
  const int32_t first = winner_[left], second = winner_[right];
  first_unsure_[node] = std::min(first_unsure_[left], first_unsure_[right]);
  if (first == kNone || second == kNone) {
    winner_[node] = first == kNone ? second : first;
    return;
  }
  const bool second_wins = lag(second, step) > lag(first, step);
  winner_[node] = second_wins ? second : first;
  const int64_t own = first_unsure_step(winner_[node], second_wins ? first : second, step);
  first_unsure_[node] = std::min(first_unsure_[node], own);
}

void LagTournament::play_path(size_t dataset, int64_t step) {
  for (size_t node = (num_leaves_ + dataset) / 2; node > 0; node /= 2) play(node, step);
}

void LagTournament::refresh(size_t node, int64_t step) {
  if (first_unsure_[node] > step) return;
  refresh(2 * node, step);
  refresh(2 * node + 1, step);
  play(node, step);
}

size_t LagTournament::leader(int64_t step) {
  refresh(1, step);
  return static_cast<size_t>(winner_[1]);
}

int64_t LagTournament::take(size_t dataset, int64_t step) {
  const int64_t before = taken_[dataset]++;
  play_path(dataset, step + 1);
  return before;
}

void LagTournament::remove(size_t dataset, int64_t step) {
  winner_[num_leaves_ + dataset] = kNone;
  play_path(dataset, step + 1);
}

}  // namespace megatron
