#include "megatron/telemetry/jsonl_writer.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "megatron/telemetry/line_file.h"

namespace megatron {
namespace {

std::string identifier(std::string name) {
  std::ranges::replace_if(
      name, [](char c) { return c == ' ' || c == '-'; }, '_');
  return name;
}

std::vector<JsonField> head_of_line(std::string_view event, WallTime time, std::int64_t iteration,
                                    std::string_view set) {
  return {
      {"event", std::string(event)}, {"time", unix_seconds(time)}, {"iteration", iteration}, {"set", std::string(set)}};
}

}  // namespace

std::string json_object_line(std::span<const JsonField> fields) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const JsonField& field : fields) std::visit([&](const auto& value) { object[field.name] = value; }, field.value);
  return object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

JsonlWriter::JsonlWriter(FileSystem& files, const std::string& path) : file_(open_line_file(files, path)) {}

void JsonlWriter::write(std::span<const JsonField> fields) {
  const std::string line = json_object_line(fields);
  file_->append(std::as_bytes(std::span(line)));
}

std::vector<JsonField> training_fields(const TrainingLogValues& v) {
  std::vector<JsonField> fields = head_of_line("training", v.time, v.iteration, "train");
  fields.insert(fields.end(), {{"consumed_samples", v.consumed_samples},
                               {"skipped_samples", v.skipped_samples},
                               {"elapsed_ms_per_iteration", v.elapsed_ms_per_iteration},
                               {"global_batch_size", v.global_batch_size}});
  for (const NamedValue& loss : v.losses) fields.push_back({identifier(loss.name), loss.value});
  const auto add = [&fields](const char* name, const std::optional<double>& value) {
    if (value) fields.push_back({name, *value});
  };
  add("learning_rate", v.learning_rate);
  add("loss_scale", v.loss_scale);
  add("grad_norm", v.grad_norm);
  add("num_zeros", v.num_zeros);
  add("params_norm", v.params_norm);
  add("max_attention_logit", v.max_attention_logit);
  add("tokens_per_second", v.tokens_per_second);
  add("tflops_per_gpu", v.tflops_per_gpu);
  add("mfu_percent", v.mfu_percent);
  add("kernel_ceiling_percent", v.kernel_ceiling_percent);
  add("data_wait_ms_per_iteration", v.data_wait_ms_per_iteration);
  add("energy_joules_per_gpu", v.energy_joules_per_gpu);
  add("power_watts_per_gpu", v.power_watts_per_gpu);
  fields.push_back({"skipped_iterations", v.skipped_iterations});
  fields.push_back({"nan_iterations", v.nan_iterations});
  if (v.repeated_iterations > 0) fields.push_back({"repeated_iterations", v.repeated_iterations});
  for (const NamedValue& value : v.extra) fields.push_back({value.name, value.value});
  return fields;
}

std::vector<JsonField> evaluation_fields(WallTime time, std::int64_t iteration, std::string_view set,
                                         std::span<const NamedValue> losses) {
  std::vector<JsonField> fields = head_of_line("evaluation", time, iteration, set);
  for (const NamedValue& loss : losses)
    fields.push_back({identifier(fmt::format("{}_{}", set, loss.name)), loss.value});
  return fields;
}

}  // namespace megatron
