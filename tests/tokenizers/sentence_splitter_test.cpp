#include "megatron/tokenizers/sentence_splitter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "tests/testing/source_tree.h"

namespace megatron {
namespace {
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Sentences = std::vector<std::string>;

const std::string kModel = testing::golden_path("tokenizers/punkt/model");

Sentences sentences_of(const SentenceSplitter& splitter, const std::string& text) {
  std::vector<std::string_view> views;
  splitter.split(text, views);
  return {views.begin(), views.end()};
}

TEST(SentenceSplitter, SentencesAreThoseOfNltk) {
  std::ifstream file(testing::golden_path("tokenizers/punkt/cases.json"));
  const nlohmann::json cases = nlohmann::json::parse(file);
  ASSERT_GT(cases.size(), 100u);
  for (const bool trained : {true, false})
    for (const bool keep : {false, true}) {
      const SentenceSplitter splitter(trained ? read_punkt_parameters(kModel) : PunktParameters(),
                                      {.keep_newlines = keep});
      const std::string name = std::string(trained ? "trained" : "untrained") + (keep ? "_keep" : "");
      for (const nlohmann::json& one : cases) {
        const auto text = one["text"].get<std::string>();
        EXPECT_EQ(sentences_of(splitter, text), one[name].get<Sentences>()) << name << ": " << one["text"];
      }
    }
}

TEST(SentenceSplitter, TheModelKnowsAbbreviations) {
  const std::string text = "Dr. Smith ran. He won.";
  const SentenceSplitter trained(read_punkt_parameters(kModel), {.keep_newlines = false});
  EXPECT_THAT(sentences_of(trained, text), ElementsAre("Dr. Smith ran.", "He won."));
  const SentenceSplitter untrained({}, {.keep_newlines = false});
  EXPECT_THAT(sentences_of(untrained, text), ElementsAre("Dr.", "Smith ran.", "He won."));
}

TEST(SentenceSplitter, KeepNewlinesLosesNoCharacterBetweenSentences) {
  const std::string text = "One.\n\nTwo.  Three!\tFour";
  EXPECT_THAT(sentences_of(SentenceSplitter({}, {.keep_newlines = true}), text),
              ElementsAre("One.\n\n", "Two.  ", "Three!\t", "Four"));
  EXPECT_THAT(sentences_of(SentenceSplitter({}, {.keep_newlines = false}), text),
              ElementsAre("One.", "Two.", "Three!", "Four"));
}

TEST(SentenceSplitter, LongTextIsCutIntoPiecesOfAMillionCharacters) {
  const std::string word = "\u00e9";
  std::string text;
  for (int i = 0; i < 1'500'000; ++i) text += word;
  const Sentences sentences = sentences_of(SentenceSplitter({}, {.keep_newlines = false}), text);
  ASSERT_EQ(sentences.size(), 2u);
  EXPECT_EQ(sentences[0].size(), 2'000'000u);
  EXPECT_EQ(sentences[1].size(), 1'000'000u);
}

TEST(SentenceSplitter, NamesTheFileAndLineOfADamagedModel) {
  const std::string folder = ::testing::TempDir() + "/punkt_damaged";
  std::filesystem::remove_all(folder);
  std::filesystem::copy(kModel, folder);
  std::ofstream(folder + "/ortho_context.tab") << "a\t106\nb\tmany\n";
  const auto text_of_error = [&] {
    try {
      read_punkt_parameters(folder);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(text_of_error(), HasSubstr("ortho_context.tab line 2: 'b\tmany' is not a word, a tab and a number"));
  std::filesystem::remove(folder + "/ortho_context.tab");
  EXPECT_THAT(text_of_error(), HasSubstr("python -m nltk.downloader punkt_tab"));
  std::filesystem::remove_all(folder);
}

TEST(SentenceSplitter, InvalidUtf8IsAnError) {
  std::vector<std::string_view> sentences;
  EXPECT_THROW(SentenceSplitter({}, {.keep_newlines = false}).split("a.\xFF b", sentences), DataError);
}
}  // namespace
}  // namespace megatron
