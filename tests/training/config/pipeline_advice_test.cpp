// Following all advice in the mistakes of a pipeline gives a command line that is accepted.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <regex>

#include "megatron/pipeline_parallel/pipeline_schedule.h"
#include "tests/training/config/command_line.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::refusal;
using testing::with;
using testing::Words;

struct Line {
  Words words;
  int num_ranks = 1;
};

std::string refusal_of(const Line& line) {
  try {
    return refusal(with(line.words), line.num_ranks, RuleSet::kRunnable);
  } catch (const NotSupported& error) {
    return error.what();
  }
}

/// A pipeline of up to four ranks, most often wrong in several ways.
Line random_line(std::mt19937& random) {
  const auto pick = [&](int least, int most) {
    return static_cast<int>(least + random() % static_cast<unsigned>(most - least + 1));
  };
  const auto number = [&](int least, int most) { return std::to_string(pick(least, most)); };
  const int pp = pick(1, 4), dp = pick(1, 2);
  Line line{.words = {"--num-layers", number(1, 13), "--pipeline-model-parallel-size", std::to_string(pp),
                      "--micro-batch-size", "1", "--global-batch-size", std::to_string(dp * pick(1, 9))},
            .num_ranks = pp * dp};
  const auto sometimes = [&](int one_in, const Words& words) {
    if (pick(1, one_in) == 1) line.words.insert(line.words.end(), words.begin(), words.end());
  };
  const std::vector<std::string> layouts = {"Ett|ttL", "Et|t|t|tL", "E|tttt|L", "Ettx|L", "tE|tL", "Et*4L", "(Et|)*2L"};
  sometimes(2, {"--pipeline-schedule",
                std::string(kSchedules[static_cast<size_t>(pick(0, int{kSchedules.size()} - 1))].name)});
  sometimes(3, {"--num-virtual-stages-per-pipeline-rank", number(1, 4)});
  sometimes(4, {"--num-layers-per-virtual-pipeline-stage", number(1, 3)});
  sometimes(3, {"--decoder-first-pipeline-num-layers", number(1, 5)});
  sometimes(3, {"--decoder-last-pipeline-num-layers", number(1, 5)});
  sometimes(6, {"--account-for-embedding-in-pipeline-split"});
  sometimes(6, {"--account-for-loss-in-pipeline-split"});
  sometimes(6, {"--pipeline-model-parallel-layout", layouts[static_cast<size_t>(pick(0, 6))]});
  sometimes(6, {"--microbatch-group-size-per-virtual-pipeline-stage", number(1, 5)});
  sometimes(6, {"--no-overlap-p2p-communication"});
  return line;
}

std::vector<std::string> split(const std::string& text, const std::string& pattern) {
  const std::regex border(pattern);
  return {std::sregex_token_iterator(text.begin(), text.end(), border, -1), {}};
}

/// Words of which `flag` and its value are gone.
Words without(const Words& words, const std::string& flag) {
  Words rest;
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] != flag)
      rest.push_back(words[i]);
    else if (i + 1 < words.size() && !words[i + 1].starts_with("--"))
      ++i;
  }
  return rest;
}

/// Does what every mistake advises: of alternatives, each of which follows an "or", the one with this number.
Line advised(Line line, const std::string& text, size_t alternative) {
  const std::regex give("[Gg]ive (--[^ ]+) ('[^']*'|[^ ,;.]+)"), flag("--[a-z0-9-]+");
  const std::regex leave_out("[Ll]eave out (--[a-z0-9-]+((, | and )--[a-z0-9-]+)*)");
  Words gone;
  for (const std::string& mistake : split(text, "\n  [0-9]+\\. ")) {
    const std::vector<std::string> ways = split(mistake, ", or ");
    const std::string& way = ways[std::min(alternative, ways.size() - 1)];
    for (std::sregex_iterator found(way.begin(), way.end(), give), end; found != end; ++found) {
      std::string value = (*found)[2];
      std::erase(value, '\'');
      line.words = without(line.words, (*found)[1]);
      line.words.insert(line.words.end(), {(*found)[1], value});
    }
    for (std::sregex_iterator found(way.begin(), way.end(), leave_out), end; found != end; ++found) {
      const std::string flags = (*found)[1];
      for (std::sregex_iterator one(flags.begin(), flags.end(), flag); one != end; ++one) gone.push_back(one->str());
    }
  }
  for (const std::string& one : gone) line.words = without(line.words, one);
  return line;
}

TEST(PipelineAdvice, OfAllMistakesTogetherIsAccepted) {
  std::mt19937 random(7);
  int num_wrong = 0;
  for (int i = 0; i < 1000; ++i) {
    const Line line = random_line(random);
    const std::string text = refusal_of(line);
    if (text.empty()) continue;
    ++num_wrong;
    for (const size_t alternative : {0U, 1U}) {
      const Line mended = advised(line, text, alternative);
      ASSERT_EQ(refusal_of(mended), "") << ::testing::PrintToString(line.words) << "\n"
                                        << text << "\n"
                                        << ::testing::PrintToString(mended.words);
    }
  }
  EXPECT_GT(num_wrong, 500);
}

TEST(PipelineAdvice, KeepsTheCountsOfTheFirstAndLastRank) {
  const std::string text =
      refusal_of({{"--num-layers", "12", "--pipeline-model-parallel-size", "4", "--decoder-first-pipeline-num-layers",
                   "3", "--decoder-last-pipeline-num-layers", "2"},
                  4});
  EXPECT_THAT(text, HasSubstr("give --num-layers 13, or leave out --decoder-first-pipeline-num-layers and "
                              "--decoder-last-pipeline-num-layers and give --pipeline-model-parallel-layout "
                              "'Ettt|ttt|t*4|ttL'"));
}

TEST(PipelineAdvice, IsForTheStagesThatTheScheduleHas) {
  const Words words = {
      "--num-layers", "7", "--pipeline-schedule", "zb-v", "--num-virtual-stages-per-pipeline-rank", "4"};
  Words two_ranks = words;
  two_ranks.insert(two_ranks.end(), {"--pipeline-model-parallel-size", "2"});
  const std::string text = refusal_of({two_ranks, 2});
  EXPECT_THAT(text, HasSubstr("the schedule zb-v has two virtual stages on each rank: leave out "
                              "--num-virtual-stages-per-pipeline-rank"));
  EXPECT_THAT(text, HasSubstr("7 layers (--num-layers 7) do not divide by 4 virtual stages "
                              "(--pipeline-model-parallel-size 2 * 2 virtual stages of a rank): give --num-layers 8, "
                              "or"));
  EXPECT_THAT(refusal_of({words, 1}), HasSubstr("the schedule zb-v has two virtual stages on each rank"))
      << "with one rank too";
}

TEST(PipelineAdvice, HasNoStagesWithoutLayersAndNoEndlessLayouts) {
  const auto refused = [](const std::string& stages, const std::string& chunks) {
    return refusal_of(
        {{"--pipeline-model-parallel-size", stages, "--num-virtual-stages-per-pipeline-rank", chunks}, 2});
  };
  EXPECT_THAT(refused("2", "4"), HasSubstr("give --pipeline-model-parallel-layout 'Et|t|t|tL'"));
  EXPECT_THAT(refused("2", "1000000"), HasSubstr("give --pipeline-model-parallel-layout 'Et|t|t|tL'"));
  const std::string most = refused("1000000", "1000000");
  EXPECT_THAT(most, HasSubstr("4 layers (--num-layers 4) do not divide by 1000000000000 virtual stages "
                              "(--pipeline-model-parallel-size 1000000 * 1000000 virtual stages of a rank): choose"));
  EXPECT_LT(most.size(), 1000);
}

TEST(PipelineAdvice, NamesTheFlagsThatALayoutReplaces) {
  const std::string text =
      refusal_of({{"--pipeline-model-parallel-size", "2", "--pipeline-model-parallel-layout", "Ett|ttL",
                   "--decoder-first-pipeline-num-layers", "2", "--account-for-loss-in-pipeline-split"},
                  2});
  EXPECT_THAT(text,
              HasSubstr("leave out --decoder-first-pipeline-num-layers and --account-for-loss-in-pipeline-split"));
  EXPECT_THAT(text, Not(HasSubstr("--decoder-last-pipeline-num-layers")));
}

}  // namespace
}  // namespace megatron
