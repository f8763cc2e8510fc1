// Command lines of the kind of Megatron-LM's functional tests: the configuration takes all of them, and some train.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iomanip>
#include <map>
#include <set>
#include <sstream>

#include "megatron/training/config/fields.h"
#include "tests/testing/program.h"
#include "tests/testing/scratch_directory.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using testing::joined;
using testing::Program;
using testing::ScratchDirectory;
using testing::Words;

/// One command line, with the ranks that its layout needs.
struct Line {
  std::string name;
  int num_ranks = 0;
  Words words;
};

/// The lines of functional_lines.txt, in which words in capitals stand for others.
class FunctionalLines {
 public:
  /// @param paths  what the names of paths stand for
  explicit FunctionalLines(std::map<std::string, Words> paths) : meanings_(std::move(paths)) {
    std::ifstream file(testing::source_path("tests/commands/functional_lines.txt"));
    for (std::string text; std::getline(file, text);)
      if (!text.starts_with('#')) add(text);
  }
  const std::vector<Line>& all() const { return lines_; }

 private:
  void add(const std::string& text) {
    std::istringstream stream(text);
    Line line;
    std::string second;
    stream >> line.name >> second;
    for (std::string word; stream >> std::quoted(word, '\'');) {
      const auto meaning = meanings_.find(word);
      const Words words = meaning == meanings_.end() ? Words{word} : meaning->second;
      line.words.insert(line.words.end(), words.begin(), words.end());
    }
    if (second == "=") {
      meanings_[line.name] = line.words;
    } else {
      line.num_ranks = std::stoi(second);
      lines_.push_back(line);
    }
  }

  std::map<std::string, Words> meanings_;
  std::vector<Line> lines_;
};

std::map<std::string, Words> paths_in(const std::string& folder) {
  const auto in = [&](const char* name) { return Words{folder + "/" + name}; };
  return {{"DATA", in("text_document")},
          {"VOCAB", {testing::golden_path("tokenizers/gpt2/vocab.json")}},
          {"MERGES", {testing::golden_path("tokenizers/gpt2/merges.txt")}},
          {"TOKENIZER", {testing::golden_path("tokenizers/sentencepiece/bpe.model")}},
          {"CHECKPOINTS", in("checkpoints")},
          {"TENSORBOARD", in("tensorboard")},
          {"CACHE", in("cache")},
          {"WANDB", in("wandb")}};
}

TEST(FunctionalLines, AreAllAcceptedByTheConfiguration) {
  std::set<Words> distinct;
  const FunctionalLines lines(paths_in("run"));
  for (const Line& line : lines.all()) {
    SCOPED_TRACE(line.name);
    EXPECT_NO_THROW(parse_pretrain_gpt(line.words, line.num_ranks, {}, RuleSet::kRunnable));
    distinct.insert(line.words);
  }
  EXPECT_GE(distinct.size(), 120U);
}

/// Short texts, one a line, of which each split has some.
void write_data(const std::string& folder) {
  const std::string input = folder + "/text.jsonl";
  {
    std::ofstream texts(input);
    for (int i = 0; i < 1500; ++i)
      texts << fmt::format("{{\"text\": \"Number {} is {} more than {}.\"}}\n", i, i % 7, i - i % 7);
  }
  Program preprocess({MEGATRON_PROGRAM, "preprocess_data", "--input", input, "--tokenizer-type", "GPT2BPETokenizer",
                      "--vocab-file", testing::golden_path("tokenizers/gpt2/vocab.json"), "--merge-file",
                      testing::golden_path("tokenizers/gpt2/merges.txt"), "--append-eod", "--output-prefix",
                      folder + "/data"});
  ASSERT_EQ(preprocess.wait_status(), 0) << preprocess.output();
  for (const char* suffix : {".bin", ".idx"})
    std::filesystem::rename(folder + "/data_text_document" + suffix, folder + "/text_document" + suffix);
}

TEST(FunctionalLines, TrainTwoSteps) {
  const std::set<std::string> trained = {"tp2_pp2",
                                         "tp1_pp4_vp1_dist_optimizer_overlap_grad_reduce_param_gather",
                                         "tp2_cp2_pp2_ep2_4experts",
                                         "tp2_pp1_8experts_dist_optimizer",
                                         "tp2_pp2_mla",
                                         "tp2_pp2_cp2_etp4_dp_last",
                                         "tp4_pp1_resume_torch",
                                         "tp1_pp2_fp16"};
  int num_trained = 0;
  const ScratchDirectory data;
  write_data(data.path());
  const FunctionalLines lines(paths_in(data.path()));
  for (const Line& line : lines.all()) {
    if (!trained.contains(line.name)) continue;
    SCOPED_TRACE(line.name);
    for (const char* output : {"checkpoints", "tensorboard"}) std::filesystem::remove_all(data.file(output));
    Program program(joined({MEGATRON_PROGRAM, "pretrain_gpt", "--device", "cpu", "--num-threads", "1",
                            "--nproc-per-node", std::to_string(line.num_ranks)},
                           line.words));
    EXPECT_EQ(program.wait_status(), 0) << program.output();
    EXPECT_THAT(program.output(), HasSubstr(" iteration        2/       2 |"));
    EXPECT_THAT(program.output(), HasSubstr("successfully saved checkpoint from iteration       2"));
    ++num_trained;
  }
  EXPECT_EQ(num_trained, std::ssize(trained));
}

}  // namespace
}  // namespace megatron
