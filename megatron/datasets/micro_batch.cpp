#include "megatron/datasets/micro_batch.h"

#include <algorithm>
#include <limits>

#include "megatron/base/error.h"

namespace megatron {
namespace {

template <class Id>
void append_ids(std::span<const int64_t> ids, std::vector<Id>& out) {
  for (int64_t id : ids) {
    require<DataError>(id >= std::numeric_limits<Id>::min() && id <= std::numeric_limits<Id>::max(),
                       "token {} does not fit {} bits. Train with the tokenizer that the data was made with.", id,
                       8 * sizeof(Id));
    out.push_back(static_cast<Id>(id));
  }
}

}  // namespace

HostBatch host_batch_of(const MicroBatch<int64_t>& batch) {
  return {.num_samples = batch.num_samples,
          .sequence_length = batch.sequence_length,
          .num_valid_tokens = batch.num_valid_tokens,
          .tensors = {{"tokens", std::span(batch.tokens)},
                      {"labels", std::span(batch.labels)},
                      {"loss_mask", std::span(batch.loss_mask)}},
          .sequences = {{.name = "tokens",
                         .length = batch.sequence_length,
                         .cuts = batch.cuts,
                         .cut_ends = batch.cut_ends,
                         .position_ids = batch.position_ids}}};
}

template <class Id>
void assemble(const Dataset& dataset, std::span<const int64_t> sample_indices, MicroBatch<Id>& batch) {
  batch.num_samples = static_cast<int64_t>(sample_indices.size());
  batch.sequence_length = 0;
  batch.tokens.clear();
  batch.labels.clear();
  batch.position_ids.clear();
  batch.loss_mask.clear();
  batch.cuts.clear();
  batch.cut_ends.clear();
  batch.num_valid_tokens = 0;
  batch.sample_indices.assign(sample_indices.begin(), sample_indices.end());

  GptSample sample;
  for (int64_t index : sample_indices) {
    dataset.read(index, sample);
    const auto s = static_cast<int64_t>(sample.tokens.size());
    if (batch.sequence_length == 0) batch.sequence_length = s;
    require<DataError>(s == batch.sequence_length, "sample {} has {} tokens, others of its batch have {}", index, s,
                       batch.sequence_length);
    append_ids<Id>(sample.tokens, batch.tokens);
    append_ids<Id>(sample.labels, batch.labels);
    append_ids<Id>(sample.position_ids, batch.position_ids);
    batch.loss_mask.insert(batch.loss_mask.end(), sample.loss_mask.begin(), sample.loss_mask.end());
    batch.cuts.insert(batch.cuts.end(), sample.document_cuts.begin(), sample.document_cuts.end());
    batch.cut_ends.push_back(static_cast<int64_t>(batch.cuts.size()));
    batch.num_valid_tokens += s - std::count(sample.loss_mask.begin(), sample.loss_mask.end(), 0.0f);
  }
}

template void assemble(const Dataset&, std::span<const int64_t>, MicroBatch<int32_t>&);
template void assemble(const Dataset&, std::span<const int64_t>, MicroBatch<int64_t>&);

}  // namespace megatron
