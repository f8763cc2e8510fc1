// Every flag of pretrain_gpt changes a run, or --help says why it does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "megatron/training/config/differences.h"
#include "megatron/training/config/fields.h"
#include "tests/training/config/command_line.h"

namespace megatron {
namespace {

using ::testing::HasSubstr;
using testing::Words;
using testing::words_of;

constexpr int kRankCounts[] = {1, 2, 4};

bool is_flag(const std::string& word) { return word.starts_with("--"); }

/// `words` without one flag and its values.
Words without(const Words& words, const Field& field) {
  const Words spellings = field.spellings();
  Words rest;
  bool leaves_out = false;
  for (const std::string& word : words) {
    if (is_flag(word)) leaves_out = std::ranges::find(spellings, word) != spellings.end();
    if (!leaves_out) rest.push_back(word);
  }
  return rest;
}

/// The words of the example; without one, the flag with values that are not the default.
std::vector<Words> ways_to_give(const Field& field) {
  if (!field.example.empty()) return {words_of(field.example)};
  const FieldValue value = field.get();
  if (field.kind == WordKind::kSwitch)
    return {{value == FieldValue(true) ? field.off_flags.front() : field.flags.front()}};
  Words values = field.choices;
  if (field.kind == WordKind::kInteger || field.kind == WordKind::kNumber)
    values = {"1", "2", "3", "4", "8", "16", "64"};
  if (field.kind == WordKind::kNumber) values.insert(values.end(), {"0.5", "0.25", "0.125"});
  if (values.empty()) values = {"some_path"};
  std::vector<Words> ways;
  for (const std::string& text : values) {
    if (text == python_text(value)) continue;
    Words words = {field.spelling()};
    words.insert(words.end(), field.is_list ? std::max<size_t>(field.min_words, 1) : 1, text);
    ways.push_back(words);
  }
  return ways;
}

/// Command lines to which `words` can be added: one that is complete, and the same without one of its flags, which may
/// exclude those of `words`.
std::vector<Words> lines_with(const Words& words) {
  const Words whole = testing::with();
  std::vector<Words> lines = {testing::joined(whole, words)};
  for (size_t i = 0; i < whole.size(); ++i) {
    if (!is_flag(whole[i])) continue;
    size_t end = i + 1;
    while (end < whole.size() && !is_flag(whole[end])) ++end;
    Words line = whole;
    line.erase(line.begin() + static_cast<std::ptrdiff_t>(i), line.begin() + static_cast<std::ptrdiff_t>(end));
    lines.push_back(testing::joined(line, words));
  }
  return lines;
}

/// The arguments of a line that can run; the error of another one.
struct Outcome {
  std::optional<PretrainConfig> config;
  std::string error;
};
Outcome run(const Words& line, int num_ranks) {
  try {
    return {parse_pretrain_gpt(
                line, num_ranks, [](const CheckpointConfig&) { return arguments_to_json(testing::parse()); },
                RuleSet::kRunnable),
            {}};
  } catch (const Error& error) {
    return {std::nullopt, error.what()};
  }
}

bool is_limited(const Field& field, const std::string& error) {
  return std::ranges::any_of(field.limits, [&](const FieldLimit& limit) { return error.ends_with(limit.text); });
}

/// Why giving the flag changes nothing; empty if it changes the arguments of a run that uses it, or if such a run is
/// rejected for a reason that --help gives.
std::string why_idle(const Field& field) {
  std::string why = "it has no value but its default";
  for (const Words& way : ways_to_give(field)) {
    const std::vector<Words> lines = lines_with(way);
    for (const Words& line : lines)
      for (const int num_ranks : kRankCounts) {
        const Outcome with_flag = run(line, num_ranks);
        if (is_limited(field, with_flag.error)) return {};
        if (!with_flag.config) {
          if (line == lines.front()) why = with_flag.error;
          continue;
        }
        const Words idle = idle_settings(*with_flag.config);
        const auto own = std::ranges::find_if(
            idle, [&](const std::string& text) { return text.starts_with(field.spelling() + " has no effect"); });
        if (own != idle.end()) {
          why = *own;
          continue;
        }
        const Outcome without_flag = run(without(line, field), num_ranks);
        if (!without_flag.config || arguments_texts(*with_flag.config) != arguments_texts(*without_flag.config))
          return {};
        why = "the arguments are the same without it";
      }
  }
  return why;
}

/// One space between words.
std::string unwrapped(std::string text) {
  std::ranges::replace(text, '\n', ' ');
  while (text.find("  ") != std::string::npos) text.erase(text.find("  "), 1);
  return text;
}

TEST(EveryFlag, ChangesARunOrHelpSaysWhyNot) {
  PretrainConfig defaults;
  describe(defaults).for_each([&](const Field& field) {
    if (!field.given_by_flag()) return;
    SCOPED_TRACE(field.spelling());
    const std::string help = unwrapped(help_text({"--help=" + field.spelling()}));
    if (!field.no_effect.empty()) {
      EXPECT_THAT(help, HasSubstr("no effect: " + field.no_effect));
    } else if (!field.not_yet.empty()) {
      EXPECT_THAT(help, HasSubstr(": " + field.not_yet));
      for (const Words& way : ways_to_give(field)) EXPECT_FALSE(run(lines_with(way).front(), 4).config.has_value());
    } else if (ways_to_give(field).empty() && !field.later_choices.empty()) {
      EXPECT_THAT(help, HasSubstr("choices of Megatron that are not supported yet: " + field.later_choices.front()));
    } else {
      for (const FieldLimit& limit : field.limits) EXPECT_THAT(help, HasSubstr("cannot run yet: " + limit.text));
      EXPECT_EQ(why_idle(field), "") << "Give the field an example with such_as() on which it has an effect, or mark "
                                        "it with without_effect() or not_supported_yet()";
    }
  });
}

TEST(EveryFlag, OfAnExampleIsInIt) {
  PretrainConfig defaults;
  const FieldTable table = describe(defaults);
  table.for_each([&](const Field& field) {
    if (field.example.empty()) return;
    bool names_itself = false;
    for (const std::string& word : words_of(field.example)) {
      if (!is_flag(word)) continue;
      const Field* named = table.find_flag(word);
      EXPECT_NE(named, nullptr) << word << " in the example of " << field.spelling();
      names_itself |= named == table.find_flag(field.spelling());
    }
    EXPECT_TRUE(names_itself) << field.spelling();
  });
}

}  // namespace
}  // namespace megatron
