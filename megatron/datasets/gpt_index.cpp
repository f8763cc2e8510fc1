#include "megatron/datasets/gpt_index.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string_view>

#include "megatron/base/error.h"

namespace megatron {
namespace {

// The last epoch is shuffled with the others if at least this part of its samples is needed.
constexpr double kSeparateFinalEpochBelow = 0.80;

int64_t floor_samples(int64_t tokens, const GptIndexRequest& request) {
  return std::max<int64_t>(tokens - request.extra_tokens, 0) / request.sequence_length;
}

int64_t count_samples(int64_t tokens, const GptIndexRequest& request) {
  if (request.drop_last) return floor_samples(tokens, request);
  return (std::max<int64_t>(tokens - request.extra_tokens, 0) + request.sequence_length - 1) / request.sequence_length;
}

/// Calls `put(row, position, offset)` for each row of a sample index of `num_samples` samples, in order.
template <class Put>
void walk_samples(const GptIndexRequest& request, int64_t num_samples, std::span<const int32_t> lengths,
                  std::span<const int32_t> documents, const Put& put) {
  const int64_t extra = request.extra_tokens;
  const auto length_of = [&](size_t position) -> int64_t {
    return lengths[static_cast<size_t>(documents[position] - request.sequences.begin)];
  };
  size_t position = 0;
  int64_t offset = 0;
  put(0, position, offset);
  for (int64_t row = 1; row <= num_samples; ++row) {
    int64_t needed = request.sequence_length + extra;
    while (needed != 0) {
      const int64_t available = length_of(position) - offset;
      needed -= available;
      if (needed <= 0) {
        // The sample ends here; the next one starts `extra` tokens back, on the label of its predecessor's last token.
        offset += needed + available - extra;
        needed = 0;
      } else if (position + 1 == documents.size()) {
        require(row == num_samples, "the tokens end at sample {} of {}", row, num_samples);
        offset = length_of(position) - extra;
        break;
      } else {
        ++position;
        offset = 0;
      }
    }
    put(row, position, offset);
  }
}

template <class T>
void fill_shuffled(std::span<T> values, const EpochPlan& plan, NumpyRandomState& random) {
  std::iota(values.begin(), values.end(), T{0});
  const auto first =
      static_cast<size_t>(plan.separate_final_epoch ? plan.num_samples_sans_final_epoch : plan.num_samples);
  random.shuffle(values.first(first));
  random.shuffle(values.subspan(first));
}

std::span<const int32_t> values_of_documents(const NpyArray& document_index) {
  return {reinterpret_cast<const int32_t*>(document_index.bytes().data()),
          static_cast<size_t>(document_index.num_elements())};
}

/// A bijection of 64-bit numbers whose results look random. Source: the finalizer of SplitMix64 (Steele et al. 2014).
uint64_t mixed(uint64_t value) {
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9;
  value = (value ^ value >> 27) * 0x94d049bb133111eb;
  return value ^ value >> 31;
}

/// Requires that values [first, last) of an index name each of `names` equally often. Sums of mixed values are compared
/// instead of counts, which would need random memory access: they differ if one value is wrong, and for more than one
/// except by a chance of 2^-64.
void require_equal_shares(const NpyArray& index, int64_t first, int64_t last, IndexRange names, std::string_view what) {
  if (first == last) return;
  uint64_t actual = 0, one_share = 0;
  for (int64_t i = first; i < last; ++i) {
    const int64_t name = index[i];
    if (name < names.begin || name >= names.end) {
      throw DataError(fmt::format("value {} of the {} index is {}, which is not in {} to {}", i, what, name,
                                  names.begin, names.end - 1));
    }
    actual += mixed(static_cast<uint64_t>(name));
  }
  for (int64_t name = names.begin; name < names.end; ++name) one_share += mixed(static_cast<uint64_t>(name));
  const auto share = static_cast<uint64_t>((last - first) / names.size());
  require<DataError>(actual == share * one_share,
                     "values {} to {} of the {} index do not name each of {} to {} {} times", first, last - 1, what,
                     names.begin, names.end - 1, share);
}

}  // namespace

EpochPlan plan_epochs(const GptIndexRequest& request) {
  EpochPlan plan;
  const int64_t tokens = request.tokens_per_epoch;
  const bool samples_are_needed = request.num_samples.value_or(0) > 0;
  require<DataError>(tokens > 0 || !samples_are_needed, "{} samples are needed, but the {} sequences have no tokens",
                     request.num_samples.value_or(0), request.sequences.size());
  if (samples_are_needed) {
    int64_t needed = 0;
    require<ConfigError>(!__builtin_mul_overflow(*request.num_samples, request.sequence_length, &needed) &&
                             !__builtin_add_overflow(needed, request.extra_tokens + tokens, &needed),
                         "{} samples of {} tokens are more than 2^63 tokens", *request.num_samples,
                         request.sequence_length);
    plan.num_epochs = std::max<int64_t>(1, (needed - 1) / tokens);
  }
  plan.num_samples = count_samples(plan.num_epochs * tokens, request);
  if (plan.num_epochs == 1) return plan;

  plan.num_samples_sans_final_epoch = floor_samples((plan.num_epochs - 1) * tokens, request);
  const int64_t from_final_epoch = *request.num_samples - plan.num_samples_sans_final_epoch;
  const int64_t per_epoch = floor_samples(tokens, request);
  plan.separate_final_epoch =
      from_final_epoch < static_cast<int64_t>(kSeparateFinalEpochBelow * static_cast<double>(per_epoch));
  return plan;
}

NpyArray build_document_index(const GptIndexRequest& request, const EpochPlan& plan, NumpyRandomState& random) {
  require<NotSupported>(request.sequences.end <= std::numeric_limits<int32_t>::max(),
                        "{} sequences in one dataset: the index holds up to 2^31 - 1. Split the dataset into several "
                        "and blend them.",
                        request.sequences.end);
  NpyArray index(NpyDtype::kInt32, {plan.num_epochs * request.sequences.size()});
  const std::span<int32_t> values = index.values<int32_t>();
  const auto per_epoch = static_cast<size_t>(request.sequences.size());
  for (size_t at = 0; at < values.size(); at += per_epoch) {
    const auto epoch = values.subspan(at, per_epoch);
    std::iota(epoch.begin(), epoch.end(), static_cast<int32_t>(request.sequences.begin));
  }
  const size_t first = plan.separate_final_epoch ? values.size() - per_epoch : values.size();
  random.shuffle(values.first(first));
  random.shuffle(values.subspan(first));
  return index;
}

NpyArray build_sample_index(const GptIndexRequest& request, const EpochPlan& plan, std::span<const int32_t> lengths,
                            const NpyArray& document_index) {
  require(static_cast<int64_t>(lengths.size()) == request.sequences.size(), "{} lengths for {} sequences",
          lengths.size(), request.sequences.size());
  // Offsets fit into 32 bits as lengths do; positions in the document index may not.
  const bool wide = document_index.num_elements() > std::numeric_limits<int32_t>::max();
  NpyArray index(wide ? NpyDtype::kInt64 : NpyDtype::kInt32, {plan.num_samples + 1, 2});
  const auto fill = [&]<class T>(std::span<T> rows) {
    walk_samples(request, plan.num_samples, lengths, values_of_documents(document_index),
                 [&](int64_t row, size_t position, int64_t offset) {
                   const auto at = static_cast<size_t>(2 * row);
                   rows[at] = static_cast<T>(position);
                   rows[at + 1] = static_cast<T>(offset);
                 });
  };
  if (wide) {
    fill(index.values<int64_t>());
  } else {
    fill(index.values<int32_t>());
  }
  return index;
}

NpyArray build_shuffle_index(const EpochPlan& plan, NumpyRandomState& random) {
  const bool wide = plan.num_samples >= int64_t{std::numeric_limits<uint32_t>::max()} - 1;
  NpyArray index(wide ? NpyDtype::kInt64 : NpyDtype::kUInt32, {plan.num_samples});
  if (wide) {
    fill_shuffled(index.values<int64_t>(), plan, random);
  } else {
    fill_shuffled(index.values<uint32_t>(), plan, random);
  }
  return index;
}

void check_gpt_indices(const GptIndexRequest& request, const EpochPlan& plan, std::span<const int32_t> lengths,
                       const NpyArray& document_index, const NpyArray& sample_index, const NpyArray& shuffle_index) {
  require<DataError>(document_index.dtype() == NpyDtype::kInt32, "the document index is not of 32-bit integers");
  const int64_t num_documents = document_index.num_elements();
  const int64_t final_epoch = num_documents - (plan.separate_final_epoch ? request.sequences.size() : 0);
  require_equal_shares(document_index, 0, final_epoch, request.sequences, "document");
  require_equal_shares(document_index, final_epoch, num_documents, request.sequences, "document");

  walk_samples(request, plan.num_samples, lengths, values_of_documents(document_index),
               [&](int64_t row, size_t position, int64_t offset) {
                 const int64_t stored_position = sample_index[2 * row], stored_offset = sample_index[2 * row + 1];
                 if (stored_position == static_cast<int64_t>(position) && stored_offset == offset) return;
                 throw DataError(fmt::format(
                     "sample {} of the sample index starts at token {} of document {}, but by the data at token {} of "
                     "document {}",
                     row, stored_offset, stored_position, offset, position));
               });

  const int64_t first = plan.separate_final_epoch ? plan.num_samples_sans_final_epoch : plan.num_samples;
  require_equal_shares(shuffle_index, 0, first, {0, first}, "shuffle");
  require_equal_shares(shuffle_index, first, plan.num_samples, {first, plan.num_samples}, "shuffle");
}

}  // namespace megatron
