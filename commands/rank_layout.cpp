#include "commands/rank_layout.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <iterator>
#include <regex>
#include <sstream>
#include <utility>

#include "commands/run_flags.h"
#include "megatron/base/flag_parser.h"
#include "megatron/base/word_list.h"
#include "megatron/context_parallel/cp_comm_type.h"
#include "megatron/pipeline_parallel/pipeline_schedule.h"
#include "megatron/training/verify/covering_set.h"

namespace megatron {
namespace {

struct NumberSetting {
  std::string_view setting;
  int64_t RankLayout::*value;
  std::string_view flag, help;
  int64_t unset = 1;
};
constexpr auto kNumbers = std::to_array<NumberSetting>({
    {"tp", &RankLayout::tp, "--tensor-model-parallel-size", "tensor-parallel ranks"},
    {"pp", &RankLayout::pp, "--pipeline-model-parallel-size", "pipeline ranks"},
    {"vpp", &RankLayout::vpp, "--num-virtual-stages-per-pipeline-rank", "virtual stages of each pipeline rank"},
    {"cp", &RankLayout::cp, "--context-parallel-size", "context-parallel ranks"},
    {"dp", &RankLayout::dp, "", "data-parallel ranks"},
    {"ep", &RankLayout::ep, "--expert-model-parallel-size", "ranks that share the experts"},
    {"etp", &RankLayout::etp, "--expert-tensor-parallel-size", "ranks that share each expert; default: tp", 0},
    {"instances", &RankLayout::instances, "--num-distributed-optimizer-instances",
     "copies of the distributed optimizer's shards"},
});

struct SwitchSetting {
  std::string_view setting;
  bool RankLayout::*value;
  std::string_view flag, help;
};
constexpr auto kSwitches = std::to_array<SwitchSetting>({
    {"sp", &RankLayout::sp, "--sequence-parallel", "sequence parallel"},
    {"dist-opt", &RankLayout::dist_opt, "--use-distributed-optimizer", "distributed optimizer"},
    {"overlap", &RankLayout::overlap, "--overlap-grad-reduce",
     "reduce gradients during backward; with dist-opt also gather weights during forward"},
    {"recompute", &RankLayout::recompute, "--recompute-granularity", "all layers, one at a time"},
});

template <class Enum>
std::vector<std::string> names_of() {
  std::vector<std::string> names;
  for (const auto& [value, name] : names_of_enum(Enum{})) names.emplace_back(name);
  return names;
}

struct NameSetting {
  std::string_view setting;
  std::string RankLayout::*value;
  std::string_view flag, help;
  std::vector<std::string> names;
};
const std::vector<NameSetting>& name_settings() {
  static const std::vector<NameSetting> settings{
      {"schedule", &RankLayout::schedule, "--pipeline-schedule", "pipeline schedule", names_of<ScheduleKind>()},
      {"cp-type", &RankLayout::cp_type, "--cp-comm-type", "how context-parallel ranks share attention",
       names_of<CpCommType>()}};
  return settings;
}

std::vector<std::string> all_settings() {
  std::vector<std::string> settings;
  for (const NameSetting& one : name_settings()) settings.push_back(std::string(one.setting) + "=NAME");
  for (const NumberSetting& number : kNumbers) settings.push_back(std::string(number.setting) + "=N");
  for (const SwitchSetting& one : kSwitches) settings.emplace_back(one.setting);
  return settings;
}

/// @return whether the setting is known.
bool take_setting(const std::string& setting, RankLayout& layout) {
  for (const SwitchSetting& one : kSwitches)
    if (setting == one.setting) return layout.*one.value = true;
  const size_t equals = setting.find('=');
  if (equals == std::string::npos) return false;
  const std::string name = setting.substr(0, equals), value = setting.substr(equals + 1);
  for (const NameSetting& one : name_settings()) {
    if (name != one.setting) continue;
    layout.*one.value = value;
    return std::ranges::find(one.names, value) != one.names.end();
  }
  for (const NumberSetting& number : kNumbers) {
    if (name != number.setting) continue;
    int64_t& target = layout.*number.value;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), target);
    return error == std::errc() && end == value.data() + value.size() && target >= 1 && target <= 64;
  }
  return false;
}

/// Rejects settings without effect for their number of ranks. @return whether there are none.
bool check_effect(const std::string& text, const RankLayout& layout, Mistakes& mistakes) {
  const auto idle = [&](std::string_view setting, std::string_view ranks) {
    mistakes.add({"--layout"}, "--layout '{}': {} has no effect without {}=2 or more", text, setting, ranks);
    return false;
  };
  bool is_good = true;
  if (!layout.schedule.empty() && layout.pp == 1) is_good = idle("schedule", "pp");
  if (!layout.cp_type.empty() && layout.cp == 1) is_good = idle("cp-type", "cp");
  if (layout.sp && layout.tp == 1) is_good = idle("sp", "tp");
  if (layout.overlap && layout.dp * layout.cp == 1) is_good = idle("overlap", "cp=2 or dp");
  return is_good;
}

/// The schedules of a pipeline of `pp` ranks.
std::vector<std::pair<std::string, int64_t>> schedules_of(int64_t pp) {
  if (pp == 1) return {{"", 1}};
  std::vector<std::pair<std::string, int64_t>> schedules = {{"", 1}, {"", 2}};  // 1f1b and interleaved
  for (const ScheduleTraits& traits : kSchedules)
    if (traits.kind != ScheduleKind::kOneFOneB && traits.kind != ScheduleKind::kInterleaved)
      schedules.emplace_back(traits.name, 1);
  return schedules;
}

/// How `cp` context-parallel ranks can share attention.
std::vector<std::string> context_types_of(int64_t cp) {
  if (cp == 1) return {""};
  std::vector<std::string> types{"", "all_gather", "a2a"};
  if (cp % 2 == 0 && cp > 2) types.emplace_back("a2a+p2p");
  return types;
}

/// The schedule and its virtual stages are one factor.
FactorValues factors_of(const RankLayout& layout) {
  const auto schedules = schedules_of(2);
  const auto schedule = std::ranges::find(schedules, std::pair(layout.schedule, layout.vpp));
  const auto types = context_types_of(4);
  return {layout.tp,
          layout.pp,
          layout.dp,
          layout.cp,
          std::ranges::find(types, layout.cp_type) - types.begin(),
          schedule - schedules.begin(),
          layout.sp,
          layout.dist_opt,
          layout.overlap,
          layout.recompute,
          layout.ep,
          layout.etp};
}

}  // namespace

std::optional<RankLayout> parse_rank_layout(const std::string& text, Mistakes& mistakes) {
  std::istringstream stream(text);
  const std::vector<std::string> settings{std::istream_iterator<std::string>(stream), {}};
  RankLayout layout;
  bool is_good = !settings.empty();
  if (settings.empty()) mistakes.add({"--layout"}, "--layout '': give settings such as 'tp=2 pp=2 sp dist-opt'");
  for (const std::string& setting : settings) {
    if (take_setting(setting, layout)) continue;
    is_good = false;
    std::vector<std::string> names;
    for (const NameSetting& one : name_settings())
      names.push_back(fmt::format("{} one of {}", one.setting, joined(one.names, ", ")));
    mistakes.add({"--layout"}, "--layout '{}': '{}' is none of {}; N is from 1 to 64, {}", text, setting,
                 joined(all_settings(), ", "), joined(names, "; "));
  }
  if (!is_good || !check_effect(text, layout, mistakes)) return std::nullopt;
  return layout;
}

std::string to_string(const RankLayout& layout) {
  std::vector<std::string> settings;
  for (const NumberSetting& number : kNumbers)
    if (layout.*number.value != number.unset)
      settings.push_back(fmt::format("{}={}", number.setting, layout.*number.value));
  for (const NameSetting& one : name_settings())
    if (!(layout.*one.value).empty()) settings.push_back(fmt::format("{}={}", one.setting, layout.*one.value));
  for (const SwitchSetting& one : kSwitches)
    if (layout.*one.value) settings.emplace_back(one.setting);
  return settings.empty() ? "one rank" : joined(settings, " ");
}

std::string rank_layout_help() {
  std::string text;
  const auto add = [&](const std::string& setting, std::string_view help) {
    text += fmt::format("  {:<16}{}\n", setting, help);
  };
  for (const NumberSetting& number : kNumbers) add(fmt::format("{}=N", number.setting), number.help);
  for (const NameSetting& one : name_settings())
    add(std::string(one.setting) + "=NAME", fmt::format("{}: {}", one.help, joined(one.names, ", ")));
  for (const SwitchSetting& one : kSwitches) add(std::string(one.setting), one.help);
  return text;
}

std::vector<std::string> flags_of(const RankLayout& layout) {
  std::vector<std::string> flags;
  for (const NumberSetting& number : kNumbers)
    if (!number.flag.empty() && layout.*number.value != number.unset)
      flags.insert(flags.end(), {std::string(number.flag), std::to_string(layout.*number.value)});
  for (const NameSetting& one : name_settings())
    if (!(layout.*one.value).empty()) flags.insert(flags.end(), {std::string(one.flag), layout.*one.value});
  if (layout.cp_type == "a2a+p2p")
    flags.insert(flags.end(),
                 {"--hierarchical-context-parallel-sizes", "2", std::to_string(std::max<int64_t>(1, layout.cp / 2))});
  for (const SwitchSetting& one : kSwitches) {
    if (!(layout.*one.value)) continue;
    flags.emplace_back(one.flag);
    if (one.value == &RankLayout::recompute)
      flags.insert(flags.end(), {"full", "--recompute-method", "uniform", "--recompute-num-layers", "1"});
  }
  if (layout.overlap && layout.dist_opt) flags.emplace_back("--overlap-param-gather");
  return flags;
}

std::optional<std::string> layout_setting_of(const std::string& flag) {
  for (const NumberSetting& number : kNumbers)
    if (flag == number.flag) return std::string(number.setting) + "=N";
  for (const SwitchSetting& one : kSwitches)
    if (flag == one.flag && one.value != &RankLayout::recompute) return std::string(one.setting);
  for (const NameSetting& one : name_settings())
    if (flag == one.flag) return std::string(one.setting) + "=NAME";
  if (flag == "--num-layers-per-virtual-pipeline-stage") return "vpp=N";
  if (flag == "--overlap-param-gather") return "dist-opt overlap";
  if (num_ranks_flags().contains(flag)) return "dp=N";
  return std::nullopt;
}

std::string in_layout_settings(std::string text) {
  const auto replace = [&](std::string_view flag, std::string_view setting, std::string_view value) {
    if (flag.empty()) return;
    const std::string end = "(?![a-z0-9-])";  // not the beginning of a longer flag
    if (!value.empty())
      text = std::regex_replace(text, std::regex(fmt::format("{} ({}){}", flag, value, end)),
                                fmt::format("{}=$1", setting));
    text = std::regex_replace(text, std::regex(std::string(flag) + end), std::string(setting));
  };
  for (const NumberSetting& number : kNumbers) replace(number.flag, number.setting, "[0-9]+");
  for (const NameSetting& one : name_settings()) {
    std::string names = joined(one.names, "|");
    for (size_t plus = names.find('+'); plus != std::string::npos; plus = names.find('+', plus + 2))
      names.insert(plus, "\\");
    replace(one.flag, one.setting, names);
  }
  for (const SwitchSetting& one : kSwitches)
    if (one.value != &RankLayout::recompute) replace(one.flag, one.setting, "");
  return text;
}

namespace {

/// The layout with each way to share the experts over its ranks of a stage.
void add_expert_grids(const RankLayout& layout, std::vector<RankLayout>& all) {
  const int64_t of_stage = layout.tp * layout.cp * layout.dp;
  for (int64_t ep = 1; ep <= of_stage; ++ep)
    for (int64_t etp = 1; ep * etp <= of_stage; ++etp) {
      if (of_stage % (ep * etp) != 0) continue;
      RankLayout& added = all.emplace_back(layout);
      added.ep = ep;
      added.etp = etp == layout.tp ? 0 : etp;
    }
}

}  // namespace

std::vector<RankLayout> rank_layouts(int64_t max_ranks, bool has_experts) {
  std::vector<RankLayout> all;
  for (int64_t tp = 1; tp <= max_ranks; ++tp)
    for (int64_t pp = 1; tp * pp <= max_ranks; ++pp)
      for (int64_t dp = 1; tp * pp * dp <= max_ranks; ++dp)
        for (int64_t cp = 1; tp * pp * dp * cp <= max_ranks; cp *= 2)
          for (const auto& [schedule, vpp] : schedules_of(pp))
            for (const std::string& type : context_types_of(cp))
              for (int bits = 0; bits < 16; ++bits) {
                if (((bits & 1) && tp == 1) || ((bits & 4) && dp * cp == 1)) continue;  // settings without effect
                const RankLayout layout{.tp = tp,
                                        .pp = pp,
                                        .dp = dp,
                                        .cp = cp,
                                        .vpp = vpp,
                                        .instances = 1,
                                        .schedule = schedule,
                                        .cp_type = type,
                                        .sp = (bits & 1) != 0,
                                        .dist_opt = (bits & 2) != 0,
                                        .overlap = (bits & 4) != 0,
                                        .recompute = (bits & 8) != 0};
                if (has_experts)
                  add_expert_grids(layout, all);
                else
                  all.push_back(layout);
              }
  std::erase(all, RankLayout{});  // one rank is the reference
  return all;
}

std::vector<RankLayout> pairwise_cover(const std::vector<RankLayout>& layouts) {
  std::vector<FactorValues> rows(layouts.size());
  std::ranges::transform(layouts, rows.begin(), factors_of);
  std::vector<RankLayout> chosen;
  for (const size_t row : pairwise_covering_set(rows)) chosen.push_back(layouts[row]);
  std::ranges::stable_sort(chosen, {}, &RankLayout::num_ranks);
  return chosen;
}

}  // namespace megatron
