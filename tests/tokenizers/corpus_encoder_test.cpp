#include "megatron/tokenizers/corpus_encoder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "megatron/base/error.h"
#include "megatron/tokenizers/byte_level_tokenizer.h"
#include "megatron/tokenizers/char_tokenizer.h"
#include "megatron/tokenizers/null_tokenizer.h"
#include "megatron/tokenizers/zstd_file.h"
#include "tests/testing/scratch_directory.h"

namespace megatron {
namespace {
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string written_corpus(const std::string& name, const std::string& content) {
  static const megatron::testing::ScratchDirectory directory;  // tests run side by side, each in a process of its own
  const std::string path = directory.file(name);
  std::ofstream(path, std::ios::binary) << content;
  return path;
}

/// All documents of a source as text, each with its line number before it.
std::vector<std::string> documents_of(const DocumentSource::Options& options) {
  DocumentSource source(options);
  std::vector<std::string> documents;
  while (const auto batch = source.next())
    for (const auto& document : batch->documents)
      documents.push_back(std::to_string(document.line) + ":" + std::string(batch->text_of(document)));
  return documents;
}

TEST(DocumentSource, LinesParagraphsAndFilesAreDocumentsWhateverTheBatchSize) {
  const std::string path = written_corpus("text.txt", "one\ntwo\n\n\n\nthree\n\nfour\nfive");
  const std::string second = written_corpus("second.txt", "\n\nsix\n\n");
  for (const size_t batch_bytes : {1, 2, 3, 7, 1000}) {
    DocumentSource::Options options{.files = {path, second}, .batch_bytes = batch_bytes};
    EXPECT_THAT(documents_of(options), ElementsAre("1:one", "2:two", "3:", "4:", "5:", "6:three", "7:", "8:four",
                                                   "9:five", "1:", "2:", "3:six", "4:"));
    options.format = DocumentFormat::kParagraphs;
    EXPECT_THAT(documents_of(options), ElementsAre("1:one\ntwo\n", "6:three\n", "8:four\nfive", "3:six\n"));
    options.format = DocumentFormat::kWholeFile;
    EXPECT_THAT(documents_of(options), ElementsAre("1:one\ntwo\n\n\n\nthree\n\nfour\nfive", "1:\n\nsix\n\n"));
  }
}

TEST(DocumentSource, EveryNthDocumentIsCountedOverAllFiles) {
  const std::string first = written_corpus("first.txt", "0\n1\n2\n"), second = written_corpus("second.txt", "3\n4\n5");
  DocumentSource::Options options{.files = {first, second}, .divisor = 2, .remainder = 0, .batch_bytes = 3};
  EXPECT_THAT(documents_of(options), ElementsAre("1:0", "3:2", "2:4"));
  options.remainder = 1;
  EXPECT_THAT(documents_of(options), ElementsAre("2:1", "1:3", "3:5"));
}

TEST(DocumentSource, ARangeCutsBetweenCharacters) {
  const std::string path = written_corpus("range.txt",
                                          "\xC3\xA9\xC3\xA9\n\xE2\x82\xAC"
                                          "5678\n\xC3\xA9");  // 10 characters
  DocumentSource::Options options{.files = {path}, .format = DocumentFormat::kWholeFile, .range = {0, 0.35}};
  EXPECT_THAT(documents_of(options), ElementsAre("1:\xC3\xA9\xC3\xA9\n"));
  options.range = {0.35, 1};
  EXPECT_THAT(documents_of(options), ElementsAre("2:\xE2\x82\xAC"
                                                 "5678\n\xC3\xA9"));
  options.files = {written_corpus("range.txt", "a\xFF")};
  EXPECT_THROW(documents_of(options), DataError);
}

TEST(DocumentSource, GzipIsUnpackedAndMustBeWhole) {
  const std::string packed(  // printf 'one\ntwo\n' | gzip -n
      "\x1F\x8B\x08\x00\x00\x00\x00\x00\x00\x03\xCB\xCF\x4B\xE5\x2A\x29\xCF\xE7\x02\x00\xE6\x0B\xBA\x12\x08\x00\x00"
      "\x00",
      28);
  const std::string path = written_corpus("lines.gz", packed);
  for (const size_t batch_bytes : {3, 1000})
    EXPECT_THAT(documents_of({.files = {path}, .batch_bytes = batch_bytes}), ElementsAre("1:one", "2:two"));
  EXPECT_THROW(documents_of({.files = {written_corpus("cut.gz", packed.substr(0, 15))}}), DataError);
  EXPECT_THROW(documents_of({.files = {written_corpus("bad.gz", packed.substr(0, 20) + "xxxxxxxx")}}), DataError);
}

TEST(DocumentSource, ZstdIsUnpackedAndMustBeWhole) {
  const std::string packed(  // printf 'one\ntwo\n' | zstd
      "\x28\xB5\x2F\xFD\x04\x58\x41\x00\x00\x6F"
      "\x6E\x65\x0A\x74\x77\x6F\x0A\xE6\xA6\x0E\x40",
      21);
  if (!has_zstd()) {
    EXPECT_THROW(documents_of({.files = {written_corpus("lines.zst", packed)}}), NotSupported);
    GTEST_SKIP() << "this build has no libzstd";
  }
  const std::string path = written_corpus("lines.zst", packed + packed);  // frames follow each other
  for (const size_t batch_bytes : {1, 3, 8, 1000})
    EXPECT_THAT(documents_of({.files = {path}, .batch_bytes = batch_bytes}),
                ElementsAre("1:one", "2:two", "3:one", "4:two"));
  EXPECT_THROW(documents_of({.files = {written_corpus("cut.zst", packed.substr(0, 15))}}), DataError);
  EXPECT_THROW(documents_of({.files = {written_corpus("bad.zst", packed.substr(0, packed.size() - 4) + "xxxx")}}),
               DataError);
}

TEST(DocumentSource, FilesThatCannotBeReadAreNamed) {
  EXPECT_THROW(documents_of({.files = {"/nowhere/x.jsonl"}}), IoError);
  EXPECT_THROW(documents_of({.files = {::testing::TempDir()}}), IoError);
  EXPECT_THAT(documents_of({.files = {written_corpus("empty", "")}}), ElementsAre());
}

/// The ids of a corpus of JSON lines, one string per document and key: sequences separated by '|'.
std::vector<std::string> encoded(const std::string& lines, const DocumentEncoding& encoding, int64_t num_workers = 1) {
  const NullTokenizer tokenizer({.vocab_size = 1000});
  DocumentSource source({.files = {written_corpus("corpus.jsonl", lines)}, .batch_bytes = 64});
  std::vector<std::string> documents;
  encode_corpus(source, tokenizer, encoding, num_workers, [&](const EncodedBatch& batch) {
    for (const EncodedDocuments& key : batch.keys) {
      EXPECT_EQ(key.num_sequences.size(), batch.input_bytes.size());
      auto id = key.ids.begin();
      auto length = key.sequence_lengths.begin();
      for (const int32_t count : key.num_sequences) {
        std::string text;
        for (int32_t s = 0; s < count; ++s, id += *length++)
          text += tokenizer.decode(std::span(id, id + *length)) + "|";
        documents.push_back(text);
      }
      EXPECT_EQ(id, key.ids.end());
    }
  });
  return documents;
}

TEST(EncodeCorpus, StringsAndListsOfStringsBecomeSequences) {
  const std::string lines =
      "{\"text\": \"1 2\", \"n\": NaN}\n"
      " {\"n\": {\"text\": \"9\"}, \"text\": [\"3\", \"4 5\"]}\r\n"
      "{\"text\": []}\n"
      "{\"text\": \"6\", \"te\\u0078t\": \"7\"}";
  EXPECT_THAT(encoded(lines, {.json_keys = {"text"}}), ElementsAre("1 2|", "3|4 5|", "", "7|"));
  EXPECT_THAT(encoded(lines, {.json_keys = {"text"}, .append_eod = true}),
              ElementsAre("1 2 999|", "3|4 5 999|", "", "7 999|"));
}

TEST(EncodeCorpus, EachKeyHasItsOwnDocuments) {
  EXPECT_THAT(encoded("{\"b\": \"1\", \"a\": \"2\", \"c\": 5}\n", {.json_keys = {"a", "b"}}), ElementsAre("2|", "1|"));
}

TEST(EncodeCorpus, OrderDoesNotDependOnTheNumberOfWorkers) {
  std::string lines;
  for (int i = 0; i < 900; ++i) lines += "{\"text\": \"" + std::to_string(i) + "\"}\n";
  const std::vector<std::string> one = encoded(lines, {.json_keys = {"text"}}, 1);
  ASSERT_EQ(one.size(), 900u);
  EXPECT_EQ(one[417], "417|");
  for (const int64_t num_workers : {2, 3, 8}) EXPECT_EQ(encoded(lines, {.json_keys = {"text"}}, num_workers), one);
}

std::string error_of(const std::string& lines, int64_t num_workers = 1) {
  try {
    encoded(lines, {.json_keys = {"text"}}, num_workers);
  } catch (const DataError& error) {
    return error.what();
  }
  return "no error";
}

TEST(EncodeCorpus, BadLinesAreNamedByFileAndNumber) {
  const std::string good = "{\"text\": \"1\"}\n";
  EXPECT_THAT(error_of(good + good + "{\"text\": \"1\"\n" + good), HasSubstr("corpus.jsonl line 3: not a JSON object"));
  for (const std::string empty : {"\n", " \t\r\n"}) {
    EXPECT_THAT(error_of(good + empty + good), HasSubstr("corpus.jsonl line 2: the line is empty"));
    EXPECT_THAT(error_of(good + empty), HasSubstr("line 2: the line is empty"));
    EXPECT_THAT(error_of(good + empty), HasSubstr("Remove empty lines: sed -i '/^\\s*$/d'"));
  }
  EXPECT_THAT(error_of("\xEF\xBB\xBF" + good), HasSubstr("line 1: the line starts with a byte order mark"));
  EXPECT_THAT(error_of("[1]"), HasSubstr("line 1: not a JSON object"));
  EXPECT_THAT(error_of("{\"text\": \"1\"} {}"), HasSubstr("line 1: not a JSON object: nothing after the object"));
  EXPECT_THAT(error_of("{\"text\": \"\\ud83d\"}"), HasSubstr("line 1: the value of 'text' has an escape"));
  EXPECT_THAT(error_of("{\"text\": \"\xFF\"}"), HasSubstr("line 1: the text is not UTF-8: byte 0xff at offset 10"));
  EXPECT_THAT(error_of("{\"body\": \"1\", \"b\": [2]}"),
              HasSubstr("line 1: the JSON object has no key 'text' (--json-keys); it has 'body', 'b'. Name a key"));
  for (const std::string value : {"garbage", "01", "tru", "\"\\x\"", "[1,]"}) {
    EXPECT_THAT(error_of(good + "{\"text\": \"1\", \"d\": " + value + "}"), HasSubstr("line 2: not a JSON object:"));
    EXPECT_THAT(error_of(good + "{\"text\": \"1\", \"d\": " + value + "}"),
                HasSubstr("correct the line, or remove it"));
  }
  EXPECT_EQ(error_of("{\"text\": \"1\", \"d\": \"\\ud800\", \"\\ud800\": NaN}"), "no error") << "no text of ours";
  EXPECT_THAT(error_of("{\"text\": 1}"), HasSubstr("line 1: the value of 'text' is neither"));
  EXPECT_THAT(error_of("{\"text\": null}"), HasSubstr("line 1: the value of 'text' is neither"));
  EXPECT_THAT(error_of("{\"text\": NaN}"), HasSubstr("line 1: the value of 'text' is neither"));
  EXPECT_THAT(error_of("{\"text\": [\"1\", 2]}"), HasSubstr("line 1: the value of 'text' is neither"));
  EXPECT_THAT(error_of(good + "{\"text\": \"x\"}"), HasSubstr("line 2: NullTokenizer: 'x' is not an integer"));
}

TEST(EncodeCorpus, TheFirstBadLineOfTheInputIsReported) {
  std::string lines;
  for (int i = 1; i <= 300; ++i) lines += i % 100 == 0 ? "{}\n" : "{\"text\": \"1\"}\n";
  for (int round = 0; round < 20; ++round) EXPECT_THAT(error_of(lines, 4), HasSubstr("line 100:"));
}

TEST(EncodeCorpus, ErrorsOfTheSinkEndTheWork) {
  const ByteLevelTokenizer tokenizer;
  DocumentSource source({.files = {written_corpus("sink.txt", std::string(100'000, '\n'))}, .batch_bytes = 100});
  EXPECT_THROW(encode_corpus(source, tokenizer, {}, 2, [](const EncodedBatch&) { throw IoError("disk full"); }),
               IoError);
}

TEST(EncodeCorpus, AnEndOfDocumentMustExistToBeAppended) {
  const ByteLevelTokenizer tokenizer;
  DocumentSource source({.files = {written_corpus("eod.txt", "ab\n")}});
  std::vector<TokenId> ids;
  encode_corpus(source, tokenizer, {.append_eod = true}, 1,
                [&](const EncodedBatch& batch) { ids = batch.keys[0].ids; });
  EXPECT_THAT(ids, ElementsAre('a', 'b', 256));
  const CharTokenizer without({"a"});
  EXPECT_THROW(encode_corpus(source, without, {.append_eod = true}, 1, [](const EncodedBatch&) {}), ConfigError);
  EXPECT_THROW(encode_corpus(source, tokenizer, {}, 0, [](const EncodedBatch&) {}), ConfigError);
}
}  // namespace
}  // namespace megatron
