#include "megatron/training/global_batch.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>
#include <variant>

#include "megatron/base/error.h"
#include "megatron/comm/texts.h"

namespace megatron {
namespace {

constexpr std::string_view kSite = "documents of all data-parallel ranks";

template <class T>
void append(std::string& text, std::span<const T> values) {
  text.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
}

/// Takes the next `number` values of a text.
template <class T>
void take(std::string_view& text, size_t number, std::vector<T>& values) {
  const size_t before = values.size(), bytes = number * sizeof(T);
  require<ShapeError>(bytes <= text.size(),
                      "[hybrid context parallelism] a rank has samples of other tensors or sizes than this one.");
  values.resize(before + number);
  std::memcpy(values.data() + before, text.data(), bytes);
  text.remove_prefix(bytes);
}

/// The texts of all data-parallel ranks. Context-parallel ranks have the same one, and each sends a part of it.
std::vector<std::string> gather_from_replicas(const std::string& text, const ProcessGroupCollection& groups) {
  const auto num_parts = static_cast<size_t>(groups.cp.size()), part = static_cast<size_t>(groups.cp.rank());
  const auto begin_of = [&](size_t i) { return text.size() * i / num_parts; };
  const std::vector<std::string> parts =
      gather_texts(groups.dp_cp, text.substr(begin_of(part), begin_of(part + 1) - begin_of(part)), kSite);
  std::vector<std::string> texts(static_cast<size_t>(groups.dp.size()));
  for (size_t i = 0; i < parts.size(); ++i) texts[i / num_parts] += parts[i];
  return texts;
}

}  // namespace

GlobalBatch::GlobalBatch(const MicroBatches& whole, int64_t num_ranks)
    : length_(whole[0].sequence_length),
      num_samples_(whole[0].num_samples),
      num_batches_(std::ssize(whole)),
      num_ranks_(num_ranks) {
  const HostBatch first = whole[0];
  sequences_ = first.sequences.at(0).name;
  for (const HostTensor& tensor : first.tensors)
    std::visit(
        [&]<class T>(std::span<const T>) {
          tensors_.push_back({std::string(tensor.name), std::vector<std::remove_const_t<T>>()});
        },
        tensor.values);
}

GlobalBatch GlobalBatch::gather(const MicroBatches& whole, const ProcessGroupCollection& groups) {
  const int64_t num_tokens =
      whole[0].num_samples * whole[0].sequence_length * std::ssize(whole) * int64_t{groups.dp.size()};
  require<ConfigError>(num_tokens <= std::numeric_limits<int32_t>::max(),
                       "[hybrid context parallelism] a global batch of {} tokens has more than can be numbered, {}. "
                       "Lower --global-batch-size.",
                       num_tokens, std::numeric_limits<int32_t>::max());
  GlobalBatch all(whole, groups.dp.size());
  for (const std::string& text : gather_from_replicas(all.text_of(whole), groups)) all.add(text);
  return all;
}

GlobalBatch GlobalBatch::of_one_rank(const MicroBatches& whole) {
  GlobalBatch own(whole, 1);
  own.add(own.text_of(whole));
  return own;
}

/// Writes what add() reads: each tensor, the positions, the numbers of cuts, the cuts.
std::string GlobalBatch::text_of(const MicroBatches& whole) const {
  std::string text;
  for (size_t i = 0; i < tensors_.size(); ++i)
    for (size_t m = 0; m < whole.size(); ++m)
      std::visit([&](auto values) { append(text, values); }, whole[m].tensors.at(i).values);
  std::vector<int64_t> num_cuts;
  for (size_t m = 0; m < whole.size(); ++m) {
    const HostBatch batch = whole[m];
    const HostSequences& sequences = batch.sequences.at(0);
    require<ShapeError>(batch.sequences.size() == 1 && sequences.length == length_ && batch.num_samples == num_samples_,
                        "[hybrid context parallelism] micro-batches of {} samples of {} tokens differ from the first: "
                        "they must have one kind of sequences and one size.",
                        batch.num_samples, sequences.length);
    append(text, sequences.position_ids);
    for (int64_t sample = 0; sample < num_samples_; ++sample) num_cuts.push_back(std::ssize(sequences.cuts_of(sample)));
  }
  append(text, std::span<const int64_t>(num_cuts));
  for (size_t m = 0; m < whole.size(); ++m) append(text, whole[m].sequences.at(0).cuts);
  return text;
}

void GlobalBatch::add(std::string_view text) {
  const auto num_samples = static_cast<size_t>(num_samples_ * num_batches_),
             num_tokens = num_samples * static_cast<size_t>(length_);
  for (OwnedBatch::Values& tensor : tensors_)
    std::visit([&](auto& values) { take(text, num_tokens, values); }, tensor.values);
  take(text, num_tokens, position_ids_);
  take(text, num_samples, num_cuts_);
  take(text, text.size() / sizeof(int32_t), cuts_);
}

/// Micro-batch m of all ranks lies before micro-batch m + 1 in the global batch, in the order of the ranks.
int64_t GlobalBatch::global_sample(int64_t sample) const {
  const int64_t in_batch = sample % num_samples_, batch = sample / num_samples_ % num_batches_;
  const int64_t rank = sample / (num_samples_ * num_batches_);
  return (batch * num_ranks_ + rank) * num_samples_ + in_batch;
}

std::span<const float> GlobalBatch::loss_mask() const {
  const auto found = std::ranges::find(tensors_, kLossMask, &OwnedBatch::Values::name);
  require(found != tensors_.end(), "[hybrid context parallelism] the batch has no tensor \"{}\".", kLossMask);
  return std::get<std::vector<float>>(found->values);
}

std::vector<GlobalDocument> GlobalBatch::documents() const {
  const std::span<const float> loss_mask = this->loss_mask();
  std::vector<GlobalDocument> documents;
  size_t first_cut = 0;
  for (size_t sample = 0; sample < num_cuts_.size(); ++sample) {
    const auto number = static_cast<size_t>(num_cuts_[sample]);
    const auto weights = loss_mask.subspan(sample * static_cast<size_t>(length_), static_cast<size_t>(length_));
    for (PositionRange tokens : documents_of(std::span(cuts_).subspan(first_cut, number), length_)) {
      while (!tokens.is_empty() && weights[static_cast<size_t>(tokens.end - 1)] == 0) --tokens.end;
      if (!tokens.is_empty()) documents.push_back({sample, global_sample(static_cast<int64_t>(sample)), tokens});
    }
    first_cut += number;
  }
  return documents;
}

OwnedBatch GlobalBatch::batch_of(std::span<const GlobalDocument> documents, int64_t length) const {
  const auto rows_of = [&]<class T>(const std::vector<T>& all) {
    std::vector<T> rows;
    rows.reserve(static_cast<size_t>(length));
    for (const GlobalDocument& document : documents) {
      const auto sample = all.begin() + static_cast<std::ptrdiff_t>(document.sample) * length_;
      rows.insert(rows.end(), sample + document.tokens.begin, sample + document.tokens.end);
    }
    rows.resize(static_cast<size_t>(length));
    return rows;
  };
  OwnedBatch batch{.num_samples = 1, .sequence_length = length, .num_valid_tokens = 0, .tensors = {}, .sequences = {}};
  for (const auto& [name, all] : tensors_)
    batch.tensors.push_back(
        {name, std::visit([&](const auto& values) { return decltype(all)(rows_of(values)); }, all)});
  for (const OwnedBatch::Values& tensor : batch.tensors)
    if (const auto* mask = std::get_if<std::vector<float>>(&tensor.values); mask && tensor.name == kLossMask)
      batch.num_valid_tokens = length - std::ranges::count(*mask, 0.0F);
  OwnedBatch::Sequences sequences{
      .name = sequences_, .length = length, .cuts = {}, .cut_ends = {}, .position_ids = rows_of(position_ids_)};
  int64_t end = 0;
  for (const GlobalDocument& document : documents) {
    if (end > 0) sequences.cuts.push_back(static_cast<int32_t>(end));
    end += document.tokens.size();
  }
  sequences.cut_ends.push_back(std::ssize(sequences.cuts));
  batch.sequences.push_back(std::move(sequences));
  return batch;
}

}  // namespace megatron
