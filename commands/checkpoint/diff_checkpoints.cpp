#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <ostream>

#include "commands/checkpoint/checkpoint_actions.h"
#include "commands/terminal.h"
#include "megatron/dist_checkpointing/checkpoint_diff.h"

namespace megatron {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kDiffMebibyte = 1 << 20;

Json json_of_difference(const TensorDifference& difference) {
  return {{"name", difference.key},
          {"difference", name_of(difference.kind)},
          {"first", difference.first},
          {"second", difference.second},
          {"num_different", difference.num_different},
          {"max_absolute", difference.max_absolute},
          {"max_relative", difference.max_relative}};
}

void print_difference(const TensorDifference& difference, std::ostream& out) {
  using Kind = TensorDifference::Kind;
  out << fmt::format("{}: {}", difference.key, name_of(difference.kind));
  if (difference.kind == Kind::kShape || difference.kind == Kind::kDtype)
    out << fmt::format(", {} and {}", difference.first, difference.second);
  if (difference.kind == Kind::kValues || difference.kind == Kind::kDtype)
    out << fmt::format(", {} elements of {} differ, by at most {:.6g} absolute, {:.6g} relative",
                       difference.num_different, difference.first, difference.max_absolute, difference.max_relative);
  out << '\n';
}

}  // namespace

bool diff_checkpoints(FileSystem& files, const CheckpointFlags& flags, std::ostream& out, std::ostream& err) {
  const CheckpointReader first = open_checkpoint(files, flags.load[0], flags.ckpt_step, err);
  const CheckpointReader second = open_checkpoint(files, flags.load[1], flags.ckpt_step, err);
  const auto takes = [&](const std::string& key) { return flags.takes(key); };
  int64_t total = 0, num_compared = 0;
  for (const auto& [key, tensor] : first.metadata().tensors)
    if (takes(key) && second.has_tensor(key)) {
      total += tensor.shape.num_elements() * size_of(tensor.type);
      ++num_compared;
    }
  ProgressBar progress(bar_options(err, false), [&](std::string_view text) { err << text << std::flush; });
  progress.begin({.title = "comparing", .unit = "MiB", .total = total / kDiffMebibyte});
  int64_t done = 0;
  const std::vector<TensorDifference> differences =
      compare_checkpoints(first, second,
                          {.absolute_tolerance = flags.atol,
                           .relative_tolerance = flags.rtol,
                           .takes = takes,
                           .on_bytes = [&](int64_t bytes) { progress.update((done += bytes) / kDiffMebibyte, ""); }});
  progress.end();
  if (flags.json) {
    Json json = {{"first", first.directory()}, {"second", second.directory()}, {"num_compared", num_compared}};
    json["differences"] = Json::array();
    for (const TensorDifference& difference : differences)
      json["differences"].push_back(json_of_difference(difference));
    out << json.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
    return !differences.empty();
  }
  for (const TensorDifference& difference : differences) print_difference(difference, out);
  out << fmt::format("{} tensors in both, {}\n", num_compared,
                     differences.empty() ? "no difference" : fmt::format("{} differences", differences.size()));
  return !differences.empty();
}

}  // namespace megatron
