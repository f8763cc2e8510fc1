// A corpus to token ids, on several threads.
#pragma once

#include <functional>

#include "megatron/tokenizers/document_encoder.h"
#include "megatron/tokenizers/document_source.h"

namespace megatron {

/// Encodes all documents of `source` on `num_workers` threads and gives the batches to `sink`, on the calling thread,
/// in the order of the input: the result does not depend on the number of workers. Memory stays at a few batches per
/// worker.
/// @throw what DocumentSource, DocumentEncoder or `sink` throw: of several errors the first in the order of the input.
void encode_corpus(DocumentSource& source, const Tokenizer& tokenizer, const DocumentEncoding& encoding,
                   int64_t num_workers, const std::function<void(const EncodedBatch&)>& sink);

}  // namespace megatron
