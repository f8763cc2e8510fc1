#include "megatron/training/same_settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"
#include "megatron/comm/texts.h"
#include "megatron/comm/world.h"
#include "megatron/training/config/fields.h"

namespace megatron {
namespace {

using Json = nlohmann::json;

/// Fields that may differ: each host may keep what is read in a place of its own, has caches, threads and devices of
/// its own, and rank 0 alone writes logs.
constexpr auto kOwn = std::to_array<std::string_view>(
    {"data_args_path", "data_cache_path", "data_path", "device", "log_jsonl", "log_loss_curve", "merge_file",
     "nproc_per_node", "num_threads", "per_split_data_args_path", "profile_trace", "tensorboard_dir", "test_data_path",
     "tokenizer_model", "train_data_path", "valid_data_path", "vocab_file"});

/// One field as ranks compare it: [spelling, whether it was given, value].
enum Part : size_t { kSpelling, kIsGiven, kValue };

std::string settings_of(const PretrainConfig& config) {
  PretrainConfig copy = config;
  Json settings = Json::array();
  describe(copy).for_each([&](const Field& field) {
    if (!field.no_effect.empty() || std::find(kOwn.begin(), kOwn.end(), field.name) != kOwn.end()) return;
    settings.push_back(Json::array({field.given_by_flag() ? field.spelling() : field.name,
                                    config.given.contains(field.name), python_text(field.get())}));
  });
  return settings.dump(-1, ' ', false, Json::error_handler_t::replace);  // paths may be of any bytes
}

/// "1234 on rank 0, 77 on ranks 1, 2" of field `index`; empty if all have the same.
std::string disagreement(const std::vector<Json>& ranks, size_t index) {
  std::vector<std::string> values;
  std::map<std::string, std::vector<int>> owners;
  for (size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto value = ranks[rank][index][kValue].get<std::string>();
    if (!owners.contains(value)) values.push_back(value);
    owners[value].push_back(static_cast<int>(rank));
  }
  if (values.size() == 1) return {};
  std::vector<std::string> parts;
  parts.reserve(values.size());
  for (const std::string& value : values)
    parts.push_back(fmt::format("{} on {}", value, describe_ranks(owners[value])));
  return joined(parts, ", ");
}

}  // namespace

void require_same_settings(const PretrainConfig& config, World& world) {
  std::vector<int> all(static_cast<size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  const std::vector<std::string> texts =
      gather_texts(world.split("start", {all}).value(), settings_of(config), "settings");
  if (std::all_of(texts.begin(), texts.end(), [&](const std::string& text) { return text == texts.front(); })) return;

  std::vector<Json> ranks;
  ranks.reserve(texts.size());
  for (const std::string& text : texts) ranks.push_back(Json::parse(text));
  std::vector<std::string> given, consequences;
  for (size_t i = 0; i < ranks.front().size(); ++i) {
    const std::string values = disagreement(ranks, i);
    if (values.empty()) continue;
    const bool is_given =
        std::any_of(ranks.begin(), ranks.end(), [&](const Json& rank) { return rank[i][kIsGiven].get<bool>(); });
    (is_given ? given : consequences)
        .push_back(fmt::format("{} is {}", ranks.front()[i][kSpelling].get<std::string>(), values));
  }
  const std::vector<std::string>& differ = given.empty() ? consequences : given;
  require<ConfigError>(differ.empty(), "The ranks were started with different flags: {}. Give all ranks the same.",
                       joined(differ, "; "));
}

}  // namespace megatron
