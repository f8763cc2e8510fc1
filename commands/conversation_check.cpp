#include "commands/conversation_check.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"
#include "megatron/datasets/sft_dataset.h"

namespace megatron {

std::string check_conversations(const std::string& path, const ConversationEncoder& encoder,
                                std::optional<int64_t> seq_length, Progress& progress) {
  constexpr int64_t kShownLines = 10;
  const JsonlRows rows(path);
  SftRow all;
  int64_t longest = 0, num_cut = 0, num_untrained = 0, num_bad = 0;
  std::vector<std::string> bad;
  progress.begin({.title = "checking " + path, .unit = "lines", .total = rows.size()});
  for (int64_t i = 0; i < rows.size(); ++i) {
    try {
      const SftRow row = read_sft_row(rows.row(i), encoder);
      all.num_conversations += row.num_conversations;
      all.num_tokens += row.num_tokens;
      all.num_targets += row.num_targets;
      longest = std::max(longest, row.num_tokens);
      num_cut += seq_length && row.num_tokens > *seq_length;
      num_untrained += row.num_targets == 0;
    } catch (const Error& error) {
      if (++num_bad <= kShownLines) bad.push_back(fmt::format("{}:{}: {}", path, rows.line_number(i), error.what()));
    }
    progress.update(i + 1, "");
  }
  progress.end();
  require<DataError>(num_bad == 0, "{}\n{}: {} of {} lines are bad", joined(bad, "\n"), path, num_bad, rows.size());
  std::string report =
      fmt::format("{}: {} lines, {} conversations, {} tokens, {} of them trained; the longest line has {}", path,
                  rows.size(), all.num_conversations, all.num_tokens, all.num_targets, longest);
  if (seq_length) report += fmt::format("; {} lines have more than {} and are cut", num_cut, *seq_length);
  if (num_untrained > 0) report += fmt::format("; in {} lines nothing is trained", num_untrained);
  return report + ": no fault\n";
}

}  // namespace megatron
