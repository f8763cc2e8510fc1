// Builds the masked data sets of BERT and T5 from a file of sentences, for programs that train such models.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "megatron/datasets/indexed_dataset.h"
#include "megatron/datasets/masked_datasets.h"
#include "megatron/datasets/split.h"
#include "megatron/tokenizers/tokenizer.h"

namespace megatron {

/// The facts of a tokenizer of type BertWordPieceLowerCase or BertWordPieceCase. The latter has the tokens
/// <extra_id_0> and so on, which stand for the masked spans of T5.
/// @throw ConfigError for another type, or if the vocabulary lacks [MASK] or [PAD].
WordPieceVocabulary word_piece_vocabulary_of(const Tokenizer& tokenizer);

/// The parts of a data set for training, validation and test.
///
///     // megatron preprocess_data --split-sentences --tokenizer-type BertWordPieceCase ... --output-prefix books
///     const auto books = build_masked_datasets<BertDataset>("books_text_sentence", "949,50,1", {1000, 100, 10},
///                                                           {.sequence_length = 512},
///                                                           word_piece_vocabulary_of(tokenizer));
///     books.parts[index_of(Split::kTrain)]->read(0, sample);
template <class MaskedDataset>
struct MaskedDatasets {
  std::unique_ptr<IndexedDataset> sentences;            ///< the parts refer to it
  PerSplit<std::unique_ptr<MaskedDataset>> parts = {};  ///< null where the split takes no documents
};

/// @param prefix       of the files that preprocess_data --split-sentences writes
/// @param split        weights as of --split, of the documents
/// @param num_samples  that each part has at least
/// Source: Megatron Core, BlendedMegatronDatasetBuilder with BERTMaskedWordPieceDataset or T5MaskedWordPieceDataset.
/// @throw ConfigError for the split, DataError for the files.
template <class MaskedDataset>
MaskedDatasets<MaskedDataset> build_masked_datasets(const std::string& prefix, const std::string& split,
                                                    const PerSplit<int64_t>& num_samples,
                                                    const MaskedDatasetConfig& config,
                                                    const WordPieceVocabulary& vocabulary) {
  MaskedDatasets<MaskedDataset> result;
  result.sentences = std::make_unique<IndexedDataset>(prefix, IndexedDatasetOptions{});
  const SplitMatrix bounds = parse_split(split);
  for (const Split part : kSplits) {
    const size_t i = index_of(part);
    if (!bounds[i]) continue;
    const IndexRange documents = split_range(*bounds[i], result.sentences->num_documents());
    result.parts[i] = std::make_unique<MaskedDataset>(*result.sentences, documents, num_samples[i], config, vocabulary);
  }
  return result;
}

}  // namespace megatron
