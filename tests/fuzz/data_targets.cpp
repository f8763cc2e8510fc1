#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/datasets/indexed_dataset.h"
#include "megatron/datasets/npy_array.h"
#include "megatron/tokenizers/byte_level_tokenizer.h"
#include "megatron/tokenizers/document_encoder.h"
#include "megatron/tokenizers/document_source.h"
#include "tests/fuzz/fuzz_targets.h"
#include "tests/testing/scratch_directory.h"

namespace megatron::testing {
namespace {

constexpr int64_t kLargestTokenFile = 1 << 20;

void write_input(const std::string& path, std::span<const std::byte> input) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(input.data()), static_cast<std::streamsize>(input.size()));
}

/// The bytes that the sequences of an index take, if it has the lengths that its header promises; else 0.
int64_t token_bytes_of(std::span<const std::byte> index) {
  constexpr size_t kTokenType = 17, kCount = 18;
  if (index.size() < kIndexHeaderBytes) return 0;
  uint64_t count = 0;
  std::memcpy(&count, index.data() + kCount, sizeof count);
  if (count > (index.size() - kIndexHeaderBytes) / sizeof(int32_t)) return 0;
  std::vector<int32_t> lengths(count);
  if (count > 0) std::memcpy(lengths.data(), index.data() + kIndexHeaderBytes, count * sizeof(int32_t));
  const int64_t num_tokens = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  if (num_tokens < 0 || num_tokens > kLargestTokenFile / 8) return 0;
  return num_tokens * static_cast<int64_t>(size_of(static_cast<TokenType>(index[kTokenType])));
}

void encode_documents(const std::string& path, DocumentFormat format, size_t batch_bytes) {
  const ByteLevelTokenizer tokenizer;
  DocumentSource source({.files = {path}, .format = format, .batch_bytes = batch_bytes});
  const bool is_json = format == DocumentFormat::kLines;
  DocumentEncoding encoding{.append_eod = true, .skip_bad = true};
  if (is_json) encoding.json_keys = {"text", "title"};
  DocumentEncoder encoder(tokenizer, encoding);
  while (const std::optional<RawBatch> batch = source.next()) encoder.encode(*batch);
}

}  // namespace

void fuzz_json_lines(std::span<const std::byte> input) {
  const ScratchDirectory scratch;
  const std::string path = scratch.file("input");
  write_input(path, input);
  encode_documents(path, DocumentFormat::kLines, 16);
  encode_documents(path, DocumentFormat::kParagraphs, 16);
}

void fuzz_token_index(std::span<const std::byte> input) {
  const ScratchDirectory scratch;
  write_input(scratch.file("input.idx"), input);
  std::ofstream(scratch.file("input.bin")).close();
  std::filesystem::resize_file(scratch.file("input.bin"), static_cast<uintmax_t>(token_bytes_of(input)));
  for (const bool is_multimodal : {false, true}) {
    try {
      const IndexedDataset dataset(scratch.file("input"), {.multimodal = is_multimodal});
      for (int64_t i = 0; i < dataset.num_sequences(); ++i)
        if (std::ssize(dataset.sequence(i)) != dataset.sequence_length(i)) std::abort();
      for (int64_t i = 0; i <= dataset.num_documents(); ++i)
        if (dataset.document_index(i) < 0 || dataset.document_index(i) > dataset.num_sequences()) std::abort();
    } catch (const Error&) {
      if (is_multimodal) throw;
    }
  }
}

void fuzz_npy(std::span<const std::byte> input) {
  const ScratchDirectory scratch;
  write_input(scratch.file("input.npy"), input);
  const NpyArray array = NpyArray::load(scratch.file("input.npy"));
  int64_t seen = 0;
  for (int64_t i = 0; i < array.num_elements(); ++i) seen |= array[i];
  static_cast<void>(seen);
}

}  // namespace megatron::testing
