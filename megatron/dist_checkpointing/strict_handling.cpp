#include "megatron/dist_checkpointing/strict_handling.h"

#include <fmt/core.h>

#include <algorithm>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/message_log.h"
#include "megatron/base/word_list.h"
#include "megatron/dist_checkpointing/checkpoint_metadata.h"

namespace megatron {
namespace {

constexpr size_t kMostKeysNamed = 20;

std::string list_of(const std::set<std::string>& keys) {
  const std::vector<std::string> named(
      keys.begin(), std::next(keys.begin(), static_cast<std::ptrdiff_t>(std::min(keys.size(), kMostKeysNamed))));
  const std::string text = joined(named, ", ");
  return keys.size() > named.size() ? fmt::format("{} and {} more", text, keys.size() - named.size()) : text;
}

bool is_one_of(StrictHandling handling, std::initializer_list<StrictHandling> all) {
  return std::ranges::find(all, handling) != all.end();
}

}  // namespace

KeyMismatch compare_keys(const CheckpointMetadata& stored, const std::set<std::string>& requested) {
  KeyMismatch mismatch;
  for (const std::string& key : requested)
    if (!stored.tensors.contains(key)) mismatch.unexpected.insert(key);
  for (const auto& [key, tensor] : stored.tensors)
    if (!requested.contains(key)) mismatch.missing.insert(key);
  return mismatch;
}

bool leaves_out_unexpected(StrictHandling handling) {
  return !is_one_of(handling,
                    {StrictHandling::kAssumeOkUnexpected, StrictHandling::kRaiseUnexpected, StrictHandling::kRaiseAll});
}

void report_mismatch(StrictHandling handling, const KeyMismatch& mismatch, const std::string& directory,
                     const MessageLog& log) {
  if (is_one_of(handling, {StrictHandling::kAssumeOkUnexpected, StrictHandling::kIgnoreAll})) return;
  const bool reports_missing =
      is_one_of(handling, {StrictHandling::kLogAll, StrictHandling::kRaiseAll, StrictHandling::kReturnAll});
  std::vector<std::string> texts;
  if (!mismatch.unexpected.empty())
    texts.push_back(fmt::format("{} tensors of this run are not in the checkpoint: {}", mismatch.unexpected.size(),
                                list_of(mismatch.unexpected)));
  if (reports_missing && !mismatch.missing.empty())
    texts.push_back(fmt::format("{} tensors of the checkpoint are not read by this run: {}", mismatch.missing.size(),
                                list_of(mismatch.missing)));
  if (texts.empty()) return;
  const std::string text = fmt::format("{}: {}", directory, joined(texts, "; "));
  if (is_one_of(handling, {StrictHandling::kRaiseUnexpected, StrictHandling::kRaiseAll}))
    throw CheckpointError(
        fmt::format("[checkpoint] {}. Build the model and the optimizer with the flags that it was saved with, or load "
                    "what both have with --dist-ckpt-strictness log_all.",
                    text));
  log.warning(
      mismatch.unexpected.empty() ? text : text + ". Tensors that are not in the checkpoint keep their initial values");
}

}  // namespace megatron
