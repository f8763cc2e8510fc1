#include "megatron/pipeline_parallel/layout_string.h"

#include <algorithm>
#include <cctype>
#include <vector>

#include "megatron/base/mistakes.h"

namespace megatron {
namespace {

constexpr const char* kFlag = "--pipeline-model-parallel-layout";
constexpr size_t kLongestLayout = 1'000'000;  // characters after repetition; a larger count is a typing error

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// Reads "*n" at `position` and moves behind it. @return n, or -1 if it is not there.
int64_t read_count(std::string_view text, size_t& position) {
  if (position + 1 >= text.size() || text[position] != '*' || !is_digit(text[position + 1])) return -1;
  int64_t count = 0;
  for (++position; position < text.size() && is_digit(text[position]); ++position)
    count = std::min<int64_t>(count * 10 + (text[position] - '0'), kLongestLayout + 1);
  return count;
}

/// @return whether the result stays below kLongestLayout.
bool append(std::string& result, std::string_view piece, int64_t count) {
  if (result.size() + piece.size() * static_cast<size_t>(count) > kLongestLayout) return false;
  for (int64_t i = 0; i < count; ++i) result += piece;
  return true;
}

std::optional<std::string> repeat_groups(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    const size_t close = text[i] == '(' ? text.find(')', i) : std::string_view::npos;
    size_t behind = close == std::string_view::npos ? close : close + 1;
    const int64_t count = behind == std::string_view::npos || close == i + 1 ? -1 : read_count(text, behind);
    const bool repeats = count >= 0;
    if (!append(result, repeats ? text.substr(i + 1, close - i - 1) : text.substr(i, 1), repeats ? count : 1))
      return std::nullopt;
    i = repeats ? behind : i + 1;
  }
  return result;
}

std::optional<std::string> repeat_characters(std::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size();) {
    size_t behind = i + 1;
    const int64_t count = read_count(text, behind);
    if (!append(result, text.substr(i, 1), count < 0 ? 1 : count)) return std::nullopt;
    i = behind;
  }
  return result;
}

/// Nothing if the repetitions exceed the limit.
std::optional<std::vector<std::string>> stages_of(std::string_view text) {
  std::string plain(text);
  std::erase(plain, ',');
  const std::optional<std::string> groups = repeat_groups(plain);
  const std::optional<std::string> symbols = groups ? repeat_characters(*groups) : std::nullopt;
  if (!symbols) return std::nullopt;
  std::vector<std::string> stages(1);
  for (char c : *symbols) {
    if (c == '|')
      stages.emplace_back();
    else
      stages.back() += c;
  }
  return stages;
}

int64_t count_of(char symbol, std::string_view text) { return std::count(text.begin(), text.end(), symbol); }

void check_symbols(std::string_view all, const LayoutStringOptions& options, Mistakes& mistakes) {
  const size_t unknown = all.find_first_not_of("EtmL");
  if (unknown != std::string_view::npos)
    mistakes.add({kFlag},
                 "{}: '{}' means nothing. E is the embedding, t a decoder layer, m a layer for a further token, L the "
                 "loss, | the end of a stage; (..)*n and x*n repeat, without nesting",
                 kFlag, all[unknown]);
  const auto must_have = [&](char symbol, int64_t wanted, std::string_view what) {
    const int64_t found = count_of(symbol, all);
    if (found != wanted) mistakes.add({kFlag}, "{} has {} '{}', but {} {}", kFlag, found, symbol, what, wanted);
  };
  must_have('t', options.num_layers, "--num-layers is");
  must_have('m', options.num_mtp_layers, "--mtp-num-layers is");
  must_have('E', 1, "the embeddings are");
  must_have('L', 1, "the losses are");
  const size_t first_mtp = all.find('m');
  if (first_mtp != std::string_view::npos && all.find('t', first_mtp) != std::string_view::npos)
    mistakes.add({kFlag}, "{} has a 't' behind an 'm': layers for further tokens come after all decoder layers", kFlag);
}

void check_stages(const std::vector<std::string>& stages, const LayoutStringOptions& options, Mistakes& mistakes) {
  if (stages.front().empty() || stages.front().front() != 'E')
    mistakes.add({kFlag}, "{} must begin with E: the first stage has the embedding", kFlag);
  if (stages.back().empty() || stages.back().back() != 'L')
    mistakes.add({kFlag}, "{} must end with L: the last stage has the loss", kFlag);
  const size_t num_ranks = static_cast<size_t>(options.num_ranks);
  if (stages.size() % num_ranks != 0) {
    mistakes.add({kFlag},
                 "{} has {} stages, which do not divide by --pipeline-model-parallel-size {}. An empty stage is "
                 "written as nothing between two |",
                 kFlag, stages.size(), num_ranks);
    return;
  }
  const auto has_mtp = [](const std::string& stage) { return count_of('m', stage) > 0; };
  if (std::count_if(stages.begin(), stages.end(), has_mtp) > 1)
    mistakes.add({kFlag}, "{} has 'm' in several stages: all must be in one", kFlag);
  if (std::any_of(stages.begin(), stages.end() - static_cast<std::ptrdiff_t>(num_ranks), has_mtp))
    mistakes.add({kFlag}, "{} has an 'm' in a stage that is not the last one of its rank", kFlag);
}

std::string symbols(char symbol, int64_t count) {
  return count > 3 ? fmt::format("{}*{}", symbol, count) : std::string(static_cast<size_t>(count), symbol);
}

}  // namespace

PipelineLayout parse_layout(std::string_view text, const LayoutStringOptions& options) {
  Mistakes mistakes;
  const std::optional<PipelineLayout> layout = parse_layout(text, options, mistakes);
  mistakes.throw_if_any("the pipeline layout is wrong");
  return *layout;
}

std::optional<PipelineLayout> parse_layout(std::string_view text, const LayoutStringOptions& options,
                                           Mistakes& all_mistakes) {
  const std::optional<std::vector<std::string>> read = stages_of(text);
  if (!read) {
    all_mistakes.add({kFlag}, "{}: the repetitions make more than {} characters", kFlag, kLongestLayout);
    return std::nullopt;
  }
  const std::vector<std::string>& stages = *read;
  std::string all;
  for (const std::string& stage : stages) all += stage;
  Mistakes mistakes;
  check_symbols(all, options, mistakes);
  check_stages(stages, options, mistakes);
  for (const std::string& mistake : mistakes.texts()) all_mistakes.add({kFlag}, "{}", mistake);
  if (!mistakes.empty()) return std::nullopt;

  std::vector<int64_t> counts;
  counts.reserve(stages.size());
  for (const std::string& stage : stages) counts.push_back(count_of('t', stage));
  PipelineLayout layout({options.num_ranks, static_cast<int>(stages.size()) / options.num_ranks, options.order},
                        counts);
  for (size_t s = 0; s < stages.size(); ++s) layout.set_mtp_layers(static_cast<int>(s), count_of('m', stages[s]));
  return layout;
}

std::string to_string(const PipelineLayout& layout) {
  std::string text;
  for (size_t s = 0; s < layout.stages().size(); ++s) {
    const StageLayers& stage = layout.stages()[s];
    if (s > 0) text += '|';
    if (stage.has_embedding) text += 'E';
    text += symbols('t', stage.num_layers) + symbols('m', stage.num_mtp_layers);
    if (stage.has_head) text += 'L';
  }
  return text;
}

}  // namespace megatron
