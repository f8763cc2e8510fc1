#include <fmt/core.h>

#include <array>
#include <nlohmann/json.hpp>
#include <ostream>
#include <set>
#include <string_view>
#include <utility>

#include "commands/checkpoint/checkpoint_actions.h"
#include "megatron/base/error.h"
#include "megatron/base/size_text.h"
#include "megatron/dist_checkpointing/megatron_names.h"
#include "megatron/training/checkpoint/common_state.h"
#include "megatron/training/checkpoint/converted_state.h"

namespace megatron {
namespace {

using Json = nlohmann::ordered_json;

constexpr auto kLayoutFlags = std::to_array<std::pair<std::string_view, std::string_view>>({
    {"tensor", "tensor_model_parallel_size"},
    {"pipeline", "pipeline_model_parallel_size"},
    {"virtual pipeline", "virtual_pipeline_model_parallel_size"},
    {"context", "context_parallel_size"},
    {"expert", "expert_model_parallel_size"},
    {"expert tensor", "expert_tensor_parallel_size"},
    {"world", "world_size"},
});

bool is_of_optimizer(std::string_view key) {
  return key.starts_with("optimizer.") || key.find(".optimizer.") != std::string_view::npos;
}

/// The form in which the optimizer's tensors are stored.
int64_t bytes_of(const GlobalTensor& tensor) { return tensor.shape.num_elements() * size_of(tensor.type); }

Json chunk_json(const StoredChunk& chunk) {
  return {{"offsets", std::vector<int64_t>(chunk.box.offsets.begin(), chunk.box.offsets.end())},
          {"sizes", std::vector<int64_t>(chunk.box.sizes.begin(), chunk.box.sizes.end())},
          {"file", chunk.item.file},
          {"offset", chunk.item.offset},
          {"bytes", chunk.item.bytes}};
}

Json tensor_json(const std::string& key, const GlobalTensor& tensor, bool with_chunks) {
  std::set<std::string> files;
  for (const StoredChunk& chunk : tensor.chunks) files.insert(chunk.item.file);
  Json json = {{"name", key},
               {"shape", std::vector<int64_t>(tensor.shape.begin(), tensor.shape.end())},
               {"dtype", name_of(tensor.type)},
               {"bytes", bytes_of(tensor)},
               {"num_chunks", tensor.chunks.size()},
               {"files", files}};
  for (const StoredChunk& chunk : tensor.chunks)
    if (with_chunks) json["chunks"].push_back(chunk_json(chunk));
  return json;
}

/// The facts of the run in the common state. Plain torch.distributed.checkpoint has none.
void add_run(const CheckpointReader& reader, const CheckpointFlags& flags, Json& json) {
  if (!reader.has_common_state()) return;
  const CheckpointReader::CommonState common = reader.read_common_state();
  const pickle::Object& state = common.state();
  if (const pickle::Object* iteration = state.find(common_state::kIteration)) json["iteration"] = iteration->as_int();
  if (!state.find(common_state::kArgs)) return;
  const Json arguments = Json::parse(arguments_json_of(state));
  for (const auto& [name, flag] : kLayoutFlags)
    if (arguments.contains(flag) && !arguments[flag].is_null()) json["layout"][name] = arguments[flag];
  if (flags.args) json["args"] = arguments;
}

Json report_of(const CheckpointReader& reader, const CheckpointFlags& flags) {
  const CheckpointMetadata& metadata = reader.metadata();
  Json json = {{"directory", reader.directory()}};
  add_run(reader, flags, json);
  int64_t weights = 0, optimizer = 0;
  std::set<std::string> files;
  Json tensors = Json::array();
  for (const auto& [key, tensor] : metadata.tensors) {
    (is_of_optimizer(key) ? optimizer : weights) += bytes_of(tensor);
    for (const StoredChunk& chunk : tensor.chunks) files.insert(chunk.item.file);
    if (flags.takes(key)) tensors.push_back(tensor_json(key, tensor, flags.chunks));
  }
  for (const auto& [key, item] : metadata.objects) files.insert(item.file);
  json["optimizer"] = name_of(optimizer_form_of(metadata));
  json["num_tensors"] = metadata.tensors.size();
  json["num_objects"] = metadata.objects.size();
  json["num_files"] = files.size();
  json["weight_bytes"] = weights;
  json["optimizer_bytes"] = optimizer;
  json["tensors"] = std::move(tensors);
  return json;
}

void print_report(const Json& json, std::ostream& out) {
  const auto print = [&](std::string_view name, const std::string& text) {
    out << fmt::format("  {:<10} {}\n", name, text);
  };
  out << json["directory"].get<std::string>() << '\n';
  if (json.contains("iteration")) print("iteration", json["iteration"].dump());
  std::string layout;
  if (json.contains("layout"))
    for (const auto& [name, size] : json["layout"].items())
      layout += fmt::format("{}{} {}", layout.empty() ? "" : ", ", name, size.dump());
  if (!layout.empty()) print("layout", layout);
  print("optimizer", json["optimizer"].get<std::string>());
  const auto weights = json["weight_bytes"].get<int64_t>(), optimizer = json["optimizer_bytes"].get<int64_t>();
  print("tensors", fmt::format("{} of {}: weights {}, optimizer {}", json["num_tensors"].dump(),
                               size_text(weights + optimizer), size_text(weights), size_text(optimizer)));
  print("objects", json["num_objects"].dump());
  print("files", json["num_files"].dump());
  out << '\n';
  for (const Json& tensor : json["tensors"]) {
    const auto num_chunks = tensor["num_chunks"].get<int64_t>();
    out << fmt::format("{:<9} {:<20} {:>11}  {}  ({} chunk{} in {} file{})\n", tensor["dtype"].get<std::string>(),
                       tensor["shape"].dump(), size_text(tensor["bytes"].get<int64_t>()),
                       tensor["name"].get<std::string>(), num_chunks, num_chunks == 1 ? "" : "s",
                       tensor["files"].size(), tensor["files"].size() == 1 ? "" : "s");
    for (const Json& chunk : tensor.value("chunks", Json::array()))
      out << fmt::format("            {} from {}: {} bytes at {} of {}\n", chunk["sizes"].dump(),
                         chunk["offsets"].dump(), chunk["bytes"].dump(), chunk["offset"].dump(),
                         chunk["file"].get<std::string>());
  }
  if (!json.contains("args")) return;
  out << "\nflags of the run\n";
  for (const auto& [name, value] : json["args"].items()) out << fmt::format("  {:<50} {}\n", name, value.dump());
}

}  // namespace

void inspect_checkpoint(FileSystem& files, const CheckpointFlags& flags, std::ostream& out, std::ostream& err) {
  const CheckpointReader reader = open_checkpoint(files, flags.load[0], flags.ckpt_step, err);
  const Json report = report_of(reader, flags);
  if (flags.json)
    out << report.dump(2, ' ', false, Json::error_handler_t::replace) << '\n';
  else
    print_report(report, out);
}

}  // namespace megatron
