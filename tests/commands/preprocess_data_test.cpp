#include "commands/preprocess_data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "commands/exit_code.h"
#include "megatron/datasets/indexed_dataset.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Words = std::vector<std::string>;

constexpr int kUsage = static_cast<int>(ExitCode::kUsage), kData = static_cast<int>(ExitCode::kData);
const std::string kSource = testing::source_path();
const std::string kGolden = testing::golden_path("tokenizers/preprocess/");
const std::string kGpt2 = testing::golden_path("tokenizers/gpt2/");
const std::string kShakespeare = kSource + "/data/tinyshakespeare.txt";
const Words kBytes = {"--tokenizer-type", "ByteLevelTokenizer"};
const Words kNumbers = {"--tokenizer-type", "NullTokenizer", "--vocab-size", "1000"};

std::string content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << path;
  return std::string(std::istreambuf_iterator<char>(file), {});
}

struct Result {
  int status;
  std::string out, err;
};

/// Gives each test an empty folder.
class PreprocessData : public ::testing::Test {
 protected:
  PreprocessData() {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = ::testing::TempDir() + "/preprocess_data_" + test->name() + "/";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
  }
  ~PreprocessData() override { std::filesystem::remove_all(folder_); }

  std::string write(const std::string& name, const std::string& content) {
    std::ofstream(folder_ + name, std::ios::binary) << content;
    return folder_ + name;
  }
  Words names() const {
    Words names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) names.push_back(entry.path().filename());
    std::sort(names.begin(), names.end());
    return names;
  }
  /// Runs the command with output prefix FOLDER/out.
  Result run(const Words& input, const Words& tokenizer, const Words& others = {}) const {
    Words words = {"--output-prefix", folder_ + "out", "--input"};
    for (const Words& part : {input, tokenizer, others}) words.insert(words.end(), part.begin(), part.end());
    std::ostringstream out, err;
    const int status = preprocess_data_command(words, out, err);
    return {status, out.str(), err.str()};
  }
  /// All tokens of FOLDER/out_NAME, document by document.
  std::vector<std::vector<int64_t>> documents(const std::string& name) const {
    const IndexedDataset dataset(folder_ + "out_" + name, {});
    std::vector<std::vector<int64_t>> result;
    for (int64_t d = 0; d < dataset.num_documents(); ++d) {
      std::vector<int64_t>& document = result.emplace_back();
      for (int64_t s = dataset.document_index(d); s < dataset.document_index(d + 1); ++s)
        for (const int64_t token : dataset.sequence(s)) document.push_back(token);
    }
    return result;
  }

  std::string folder_;
};

struct GoldenCase {
  std::string name, input;
  Words tokenizer, keys, others;
};

TEST_F(PreprocessData, FilesAreMegatronsByteForByte) {
  const Words bytes = {"--tokenizer-type", "GPT2BPETokenizer",     "--vocab-file", kGolden + "vocab.json",
                       "--merge-file",     kGolden + "merges.txt", "--json-keys"};
  const Words null_u16 = {"--tokenizer-type", "NullTokenizer", "--vocab-size", "50000", "--json-keys"};
  const Words null_i32 = {"--tokenizer-type", "NullTokenizer", "--vocab-size", "131072", "--json-keys"};
  const std::vector<GoldenCase> cases = {{"text", "text", bytes, {"text"}, {}},
                                         {"text_eod", "text", bytes, {"text", "title"}, {"--append-eod"}},
                                         {"sentences", "sentences", bytes, {"text"}, {}},
                                         {"sentences_eod", "sentences", bytes, {"text"}, {"--append-eod"}},
                                         {"null_u16", "numbers", null_u16, {"text"}, {"--append-eod"}},
                                         {"null_i32", "numbers", null_i32, {"text"}, {"--append-eod"}}};
  for (const GoldenCase& one : cases)
    for (const std::string workers : {"1", "3"}) {
      Words others = one.keys;
      others.insert(others.end(), one.others.begin(), one.others.end());
      others.insert(others.end(), {"--workers", workers});
      const Result result = run({kGolden + one.input + ".jsonl"}, one.tokenizer, others);
      ASSERT_EQ(result.status, 0) << result.err;
      for (const std::string& key : one.keys)
        for (const std::string suffix : {".bin", ".idx"}) {
          const std::string name = "_" + key + "_document" + suffix;
          EXPECT_EQ(content_of(folder_ + "out" + name), content_of(kGolden + one.name + name)) << one.name << name;
        }
    }
}

TEST_F(PreprocessData, ManyWorkersGiveTheSameFiles) {
  const Words gpt2 = {"--tokenizer-type", "GPT2BPETokenizer",   "--vocab-file", kGpt2 + "vocab.json",
                      "--merge-file",     kGpt2 + "merges.txt", "--append-eod"};
  const Words text = {"--input-format", "text", "--text-documents", "blank-line", "--workers"};
  std::string bin, idx;
  for (const std::string workers : {"1", "2", "5"}) {
    Words others = text;
    others.push_back(workers);
    const Result result = run({kShakespeare}, gpt2, others);
    ASSERT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("7222 documents, 7222 sequences"));
    EXPECT_THAT(result.err, HasSubstr("Processed 7000 documents ("));
    if (bin.empty())
      bin = content_of(folder_ + "out_text_document.bin"), idx = content_of(folder_ + "out_text_document.idx");
    EXPECT_EQ(content_of(folder_ + "out_text_document.bin"), bin);
    EXPECT_EQ(content_of(folder_ + "out_text_document.idx"), idx);
  }
}

TEST_F(PreprocessData, PartitionsDealTheDocumentsInTurn) {
  std::string lines;
  for (int i = 0; i < 7; ++i) lines += "{\"text\": \"" + std::to_string(i) + "\"}\n";
  const std::string input = write("in.jsonl", lines);
  ASSERT_EQ(run({input}, kNumbers, {"--partitions", "3"}).status, 0);
  using Document = std::vector<int64_t>;
  EXPECT_THAT(documents("text_document"),
              ElementsAre(Document{0}, Document{3}, Document{6}, Document{1}, Document{4}, Document{2}, Document{5}));
  ASSERT_EQ(run({input}, kNumbers, {"--partitions", "3", "--keep-sequential-samples"}).status, 0);
  EXPECT_EQ(documents("text_document")[3], Document{3});
}

TEST_F(PreprocessData, InputsAreConcatenatedAndPatternsSorted) {
  const std::string last = write("z.jsonl", "{\"text\": \"3\"}");
  write("b.jsonl", "{\"text\": \"2\"}");
  write("a.jsonl", "{\"text\": \"1\"}\n");
  ASSERT_EQ(run({last, folder_ + "[ab].jsonl"}, kNumbers).status, 0);
  EXPECT_EQ(documents("text_document"), (std::vector<std::vector<int64_t>>{{3}, {1}, {2}}));
  const Result result = run({folder_ + "*.txt"}, kNumbers);
  EXPECT_EQ(result.status, kData);
  EXPECT_THAT(result.err, HasSubstr("*.txt: there is no such file"));
}

TEST_F(PreprocessData, ATextIsCutByCharacters) {
  const Result result = run({kShakespeare}, kBytes, {"--input-format", "text", "--text-split", "0.9"});
  ASSERT_EQ(result.status, 0) << result.err;
  const auto train = documents("train_text_document"), val = documents("val_text_document");
  ASSERT_EQ(train.size(), 1u);
  ASSERT_EQ(val.size(), 1u);
  EXPECT_EQ(train[0].size(), 1'003'854u);  // the sizes of nanoGPT's data/shakespeare_char
  EXPECT_EQ(val[0].size(), 111'540u);
  std::string text(train[0].begin(), train[0].end());
  text.append(val[0].begin(), val[0].end());
  EXPECT_EQ(text, content_of(kShakespeare));
}

TEST_F(PreprocessData, ACharacterVocabularyCanBeMadeFromTheInput) {
  const std::string vocab = folder_ + "chars.txt";
  const Words chars = {"--tokenizer-type", "CharTokenizer", "--vocab-file", vocab, "--input-format", "text"};
  ASSERT_EQ(run({kShakespeare}, chars, {"--make-char-vocab"}).status, 0);
  EXPECT_EQ(content_of(vocab).size(), 65u);
  const std::vector<int64_t> start = {18, 47, 56, 57, 58};  // "First" in nanoGPT's ids
  const auto document = documents("text_document").at(0);
  EXPECT_EQ(std::vector<int64_t>(document.begin(), document.begin() + 5), start);
  const std::string before = content_of(folder_ + "out_text_document.bin");

  EXPECT_THAT(run({kShakespeare}, chars, {"--make-char-vocab"}).err, HasSubstr("chars.txt exists"));
  ASSERT_EQ(run({kShakespeare}, chars).status, 0);
  EXPECT_EQ(content_of(folder_ + "out_text_document.bin"), before);
  const Result result = run({kShakespeare}, chars, {"--append-eod"});
  EXPECT_EQ(result.status, kUsage);
  EXPECT_THAT(result.err, HasSubstr("CharTokenizer has no end-of-document token; leave out --append-eod"));
}

TEST_F(PreprocessData, AVocabularyIsNotLeftBehindByARunThatFails) {
  const std::string vocab = folder_ + "chars.txt", text = write("text.txt", "abc");
  const Words chars = {"--tokenizer-type", "CharTokenizer", "--vocab-file",     vocab,
                       "--input-format",   "text",          "--make-char-vocab"};
  EXPECT_EQ(run({text}, chars, {"--append-eod"}).status, kUsage);
  EXPECT_THAT(names(), ElementsAre("text.txt"));
  EXPECT_EQ(run({text}, chars, {"--vocab-size", "2"}).status, kUsage);
  EXPECT_THAT(names(), ElementsAre("text.txt"));
  EXPECT_EQ(run({text}, chars).status, 0);
  EXPECT_EQ(content_of(vocab), "abc");
}

TEST_F(PreprocessData, AnEmptyInputIsAnError) {
  const std::string empty = write("empty.jsonl", ""), text = write("empty.txt", "");
  const Words as_text = {"--input-format", "text", "--tokenizer-type", "ByteLevelTokenizer"};
  for (const Result& result : {run({empty}, kNumbers), run({empty, empty}, kNumbers), run({text}, as_text)}) {
    EXPECT_EQ(result.status, kData);
    EXPECT_THAT(result.err, HasSubstr("there are no documents in the file"));
  }
  EXPECT_THAT(names(), ElementsAre("empty.jsonl", "empty.txt"));
  const std::string good = write("good.jsonl", "{\"text\": \"1\"}\n");
  EXPECT_EQ(run({empty, good}, kNumbers).status, 0);
}

TEST_F(PreprocessData, APlainTextThatIsReadAsJsonLinesNamesTheFlag) {
  const std::string hint = "If the file is plain text, give --input-format text";
  EXPECT_THAT(run({write("a.txt", "To be\n")}, kBytes).err, HasSubstr(hint));
  EXPECT_THAT(run({write("b.txt", "\nTo be\n")}, kBytes).err, HasSubstr(hint));
  EXPECT_THAT(run({write("c.jsonl", "{\"text\": 1\n")}, kBytes).err, ::testing::Not(HasSubstr(hint)));
  EXPECT_THAT(run({write("d.jsonl", "\n")}, kBytes).err, ::testing::Not(HasSubstr(hint)));
}

TEST_F(PreprocessData, AParquetFileAndAnObjectAreRejectedWithWhatToDo) {
  const Result parquet = run({write("a.parquet", "PAR1\x15\x04")}, kBytes);
  EXPECT_EQ(parquet.status, kUsage);
  EXPECT_THAT(parquet.err, HasSubstr("a.parquet is a Parquet file, which is not read. Convert it to JSON Lines first"));
  EXPECT_THAT(run({"s3://bucket/a.jsonl"}, kBytes).err, HasSubstr("Copy them first, for instance with: aws s3 cp"));
}

/// Everything that a damaged line may do is an error that names it.
TEST_F(PreprocessData, AnyByteOfALineMayBeWrongWithoutACrash) {
  const std::string line =
      R"({"text": ["a\u00e9\ud83d\ude00 ", "b"], "n": [1, -2.5e3, null, true], "o": {"k": "\"\\"}})";
  std::string lines;
  for (size_t i = 0; i < line.size(); ++i)
    for (const char wrong : {'\0', '"', '\\', '{', ']', '\x80', '\xff', ' '}) {
      lines += line;
      lines[lines.size() - line.size() + i] = wrong;
      lines += '\n';
    }
  for (size_t size = 0; size < line.size(); ++size) lines += line.substr(0, size) + '\n';
  const Result result = run({write("in.jsonl", lines + line)}, kBytes, {"--on-bad-line", "skip", "--workers", "2"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr(" lines were left out"));
  const auto texts = documents("text_document");
  EXPECT_GT(texts.size(), 10u);
  EXPECT_EQ(texts.back().size(), 9u);  // of the line that is whole
}

TEST_F(PreprocessData, ABadLineLeavesNothingBehindAndOldFilesAlone) {
  const std::string good = write("good.jsonl", "{\"text\": \"1\"}\n");
  const std::string bad = write("bad.jsonl", "{\"text\": \"1\"}\n{\"text\": \"1\"\n");
  const Result result = run({good, bad}, kNumbers);
  EXPECT_EQ(result.status, kData);
  EXPECT_THAT(result.err, HasSubstr("bad.jsonl line 2: not a JSON object"));
  EXPECT_THAT(names(), ElementsAre("bad.jsonl", "good.jsonl"));

  ASSERT_EQ(run({good}, kNumbers).status, 0);
  const Words complete = names();
  EXPECT_EQ(run({bad}, kNumbers).status, kData);
  EXPECT_EQ(names(), complete);
  EXPECT_EQ(documents("text_document"), (std::vector<std::vector<int64_t>>{{1}}));

  const Result missing = run({good}, kNumbers, {"--json-keys", "text", "body"});
  EXPECT_EQ(missing.status, kData);
  EXPECT_THAT(missing.err, HasSubstr("good.jsonl line 1: the JSON object has no key 'body'"));
  EXPECT_EQ(names(), complete);
}

TEST_F(PreprocessData, BadLinesAreLeftOutAndCountedIfAsked) {
  std::string lines, good_lines;
  for (int i = 0; i < 40; ++i) {
    const std::string good = fmt::format("{{\"text\": [\"{}\", \"7\"], \"title\": \"{}\"}}\n", i, i + 100);
    good_lines += good;
    lines += good;
    if (i % 10 == 0) lines += "{\"text\": [\"1\", 2], \"title\": \"3\"}\n";  // fails behind a part of the document
    if (i % 10 == 5) lines += "{\"text\": \"1\", \"title\": \"x\"}\n";       // fails behind the first key
    if (i % 10 == 7) lines += "}\n{\"text\": \"1\"}\nplain\n";
  }
  const std::string bad = write("bad.jsonl", lines), good = write("good.jsonl", good_lines);
  const Words keys = {"--json-keys", "text", "title", "--append-eod"};
  ASSERT_EQ(run({good}, kNumbers, keys).status, 0);
  const Words outputs = {"out_text_document.bin", "out_text_document.idx", "out_title_document.bin",
                         "out_title_document.idx"};
  Words expected;
  for (const std::string& name : outputs) expected.push_back(content_of(folder_ + name));
  for (const std::string workers : {"1", "3"}) {
    Words flags = keys;
    flags.insert(flags.end(), {"--on-bad-line", "skip", "--workers", workers});
    const Result result = run({bad}, kNumbers, flags);
    EXPECT_EQ(result.status, 0) << result.err;
    EXPECT_THAT(result.err, HasSubstr("left out: " + bad + " line 2: the value of 'text' is neither a string"));
    EXPECT_THAT(result.err, HasSubstr("20 lines were left out; the first 10 are named above"));
    for (size_t i = 0; i < outputs.size(); ++i) EXPECT_EQ(content_of(folder_ + outputs[i]), expected[i]) << outputs[i];
  }
  const Result none = run({bad}, kNumbers, {"--on-bad-line", "skip", "--json-keys", "body"});
  EXPECT_EQ(none.status, kData);
  EXPECT_THAT(none.err, HasSubstr("--on-bad-line skip: all 60 lines are bad"));
}

const std::string kPunktModel = testing::golden_path("tokenizers/punkt/model");

TEST_F(PreprocessData, SentencesAreSequencesOfTheirDocument) {
  const std::string input =
      write("in.jsonl", "{\"text\": \"Dr. Fox ran. He won.\"}\n{\"text\": \"\"}\n{\"text\": [\"A. B.\\n\", \"C\"]}\n");
  const auto sequences = [&](const Words& flags) {
    Words all = {"--split-sentences", "--punkt-model"};
    all.insert(all.end(), flags.begin(), flags.end());
    const Result result = run({input}, kBytes, all);
    EXPECT_EQ(result.status, 0) << result.err;
    const IndexedDataset dataset(folder_ + "out_text_sentence", {});
    EXPECT_EQ(dataset.num_documents(), 3);
    Words texts;
    for (int64_t i = 0; i < dataset.num_sequences(); ++i) {
      const std::vector<int64_t> tokens = dataset.sequence(i);
      texts.emplace_back(tokens.begin(), tokens.end());
    }
    return texts;
  };
  EXPECT_THAT(sequences({kPunktModel}), ElementsAre("Dr. Fox ran.", "He won.", "A. B.", "C"));
  EXPECT_THAT(sequences({"none"}), ElementsAre("Dr.", "Fox ran.", "He won.", "A. B.", "C"));
  EXPECT_THAT(sequences({"none", "--keep-newlines"}), ElementsAre("Dr. ", "Fox ran. ", "He won.", "A. B.", "C"));
}

TEST_F(PreprocessData, APunktModelIsFoundWhereNltkSearches) {
  const std::string input = write("in.jsonl", "{\"text\": \"Dr. Fox ran. He won.\"}\n");
  ::setenv("NLTK_DATA", (folder_ + "nltk").c_str(), 1);
  const Result missing = run({input}, kBytes, {"--split-sentences"});
  EXPECT_EQ(missing.status, static_cast<int>(ExitCode::kData));
  EXPECT_THAT(missing.err, HasSubstr("nltk/tokenizers/punkt_tab/english. Get NLTK's with: python -m nltk.downloader"));
  std::filesystem::create_directories(folder_ + "nltk/tokenizers/punkt_tab");
  std::filesystem::copy(kPunktModel, folder_ + "nltk/tokenizers/punkt_tab/german");
  EXPECT_EQ(run({input}, kBytes, {"--split-sentences", "--lang", "german"}).status, 0);
  EXPECT_EQ(IndexedDataset(folder_ + "out_text_sentence", {}).num_sequences(), 2);
  ::unsetenv("NLTK_DATA");
}

TEST_F(PreprocessData, TheBenchmarkWritesNothingAndNamesTheFastestNumberOfWorkers) {
  std::string lines;
  for (int i = 0; i < 2500; ++i) lines += "{\"text\": \"1 2\"}\n";
  const std::string input = write("in.jsonl", lines);
  const Result result =
      run({input}, kNumbers, {"--find-optimal-num-workers", "--workers-to-check", "1", "2", "--max-documents", "1002"});
  ASSERT_EQ(result.status, 0) << result.err;
  for (const char* text : {"Processing data with 2 workers.", "Performance results (fastest → slowest):", "2. ",
                           " workers → avg. docs/s: ", "The most optimal num of workers is "})
    EXPECT_THAT(result.out, HasSubstr(text));
  EXPECT_THAT(names(), ElementsAre("in.jsonl"));
}

TEST_F(PreprocessData, AllMistakesOfTheFlagsAreReportedAtOnce) {
  const Result result = run({}, {}, {"--wrokers", "3", "--keep-newlines", "--lang", "english", "--text-split", "0.5"});
  EXPECT_EQ(result.status, kUsage);
  for (const char* text : {"--input needs a value", "--tokenizer-type is missing", "did you mean --workers?",
                           "--keep-newlines needs --split-sentences", "--lang needs --split-sentences",
                           "--text-split needs --input-format text"})
    EXPECT_THAT(result.err, HasSubstr(text));
  EXPECT_THAT(names(), ElementsAre());
}

TEST_F(PreprocessData, RejectsUnknownTokenizers) {
  const Result result = run({kShakespeare}, {"--tokenizer-type", "MultimodalTokenizer", "--tokenizer-model", "gpt2"});
  EXPECT_EQ(result.status, kUsage);
  EXPECT_THAT(result.err, HasSubstr("MultimodalTokenizer does not exist in this version"));
}

TEST(PreprocessDataHelp, NamesEveryFlagAndShowsExamples) {
  std::ostringstream out, err;
  EXPECT_EQ(preprocess_data_command({"--help"}, out, err), 0);
  for (const char* text : {"usage: megatron preprocess_data", "--json-keys", "--keep-sequential-samples",
                           "--text-split 0.9", "NullTokenizer"})
    EXPECT_THAT(out.str(), HasSubstr(text));
  EXPECT_EQ(err.str(), "");
}
}  // namespace
}  // namespace megatron
