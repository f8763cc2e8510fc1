#include "megatron/training/startup/config_consistency.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"
#include "megatron/comm/texts.h"
#include "megatron/comm/world.h"
#include "megatron/training/config/fields.h"
#include "megatron/training/startup/data_consistency.h"
#include "megatron/training/training_data.h"

namespace megatron {
namespace {

using Json = nlohmann::json;

/// One field as ranks compare it: [spelling, whether it was given, value].
enum Part : size_t { kSpelling, kIsGiven, kValue };

std::string settings_of(const PretrainConfig& config) {
  PretrainConfig copy = config;
  Json settings = Json::array();
  describe(copy).for_each([&](const Field& field) {
    if (!field.no_effect.empty() || field.per_host) return;
    settings.push_back(Json::array({field.given_by_flag() ? field.spelling() : field.name,
                                    config.given.contains(field.name), python_text(field.get())}));
  });
  return settings.dump(-1, ' ', false, Json::error_handler_t::replace);  // paths may be of any bytes
}

/// "1234 on rank 0, 77 on ranks 1, 2" of field `index`; empty if all have the same.
std::string disagreement(const std::vector<Json>& ranks, size_t index) {
  std::vector<std::string> values;
  values.reserve(ranks.size());
  for (const Json& rank : ranks) values.push_back(rank[index][kValue].get<std::string>());
  if (std::ranges::count(values, values.front()) == std::ssize(values)) return {};
  return describe_values(values);
}

struct Differences {
  std::vector<std::string> given, consequences;  // fields that a rank was given, and what follows from them
};

Differences differences_of(const std::vector<std::string>& texts) {
  std::vector<Json> ranks;
  ranks.reserve(texts.size());
  for (const std::string& text : texts) ranks.push_back(Json::parse(text));
  Differences differ;
  for (size_t i = 0; i < ranks.front().size(); ++i) {
    const std::string values = disagreement(ranks, i);
    if (values.empty()) continue;
    const bool is_given = std::ranges::any_of(ranks, [&](const Json& rank) { return rank[i][kIsGiven].get<bool>(); });
    (is_given ? differ.given : differ.consequences)
        .push_back(fmt::format("{} is {}", ranks.front()[i][kSpelling].get<std::string>(), values));
  }
  return differ;
}

void require_none(const std::vector<std::string>& differences) {
  require<ConfigError>(differences.empty(), "The ranks were started with different flags: {}. Give all ranks the same.",
                       joined(differences, "; "));
}

}  // namespace

void require_same_config(const PretrainConfig& config, const FileSystem& files, World& world) {
  std::vector<int> all(static_cast<size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  const ProcessGroup group = world.split("start", {all}).value();
  const Differences differ = differences_of(gather_texts(group, settings_of(config), "settings"));
  require_none(differ.given);
  require_same_files(input_files_of(config), files, group);  // before what follows from them, as the vocabulary's size
  require_none(differ.consequences);
}

}  // namespace megatron
