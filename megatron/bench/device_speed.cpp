#include "megatron/bench/device_speed.h"

#include <fmt/core.h>

#include <chrono>
#include <cmath>
#include <nlohmann/json.hpp>

#include "megatron/base/md5.h"
#include "megatron/bench/device_facts.h"
#include "megatron/bench/step_rates.h"
#include "megatron/training/config/schedules.h"
#include "megatron/training/startup/matmul_precision.h"

namespace megatron {
namespace {

constexpr int kFormat = 1;
constexpr double kTera = 1e12;

/// Short, as the user has not requested it: a slow kernel is called once.
constexpr MeasureOptions kBrief{.warm_ups = 1, .repeats = 3, .fewest_repeats = 1, .seconds = 0.02};

/// Everything on which the numbers depend.
std::string key_of(const SpeedQuery& query) {
  const TransformerConfig& model = query.config.transformer;
  return fmt::format("device {}, {} threads, build {}\n{}, dropout {} {}, deterministic {}, TF32 {}, {} algorithms\n{}",
                     facts_of(query.device).name, query.num_threads, query.build, name_of(model.params_dtype),
                     model.attention_dropout, model.hidden_dropout, model.deterministic_mode,
                     query.config.precision.takes_tf32(), query.products.choices.size(),
                     description_of_cases(query.config));
}

std::string path_of(const SpeedQuery& query, const std::string& key) {
  return join_path(query.cache_folder, fmt::format("speed_{}.json", md5_hex(std::as_bytes(std::span(key)))));
}

std::string text_of(const DeviceSpeed& speed, const std::string& peak_source, const std::string& origin) {
  std::string text = "speed of a rank at best:";
  if (speed.peak_flops) text += fmt::format(" peak {:.4g} TFLOP/s ({})", *speed.peak_flops / kTera, peak_source);
  if (speed.ceiling_flops)
    text += fmt::format("{} kernel ceiling {:.4g} TFLOP/s", speed.peak_flops ? "," : "", *speed.ceiling_flops / kTera);
  else
    text += ", kernel ceiling unknown: 'megatron bench step' with the flags of this run measures it";
  return text + "; " + origin;
}

struct NamedSpeed {
  DeviceSpeed speed;
  std::string peak_source;
};

NamedSpeed speed_of(const SpeedQuery& query, const KernelCeiling& ceiling) {
  const PretrainConfig& config = query.config;
  NamedSpeed named;
  if (const auto peak = known_peak(query.device.gpu, config.transformer.params_dtype, config.precision.takes_tf32())) {
    named.speed.peak_flops = peak->flops;
    named.peak_source = peak->source;
  } else if (ceiling.best_product_rate > 0) {
    named.speed.peak_flops = ceiling.best_product_rate;
    named.peak_source = "fastest matmul measured";
  }
  if (ceiling.is_complete && ceiling.seconds() > 0)
    named.speed.ceiling_flops = rates_of(step_work_of(config), ceiling.seconds()).megatron_flops;
  return named;
}

std::string json_of(const NamedSpeed& named, const std::string& key) {
  nlohmann::ordered_json json = {{"format", kFormat}, {"key", key}, {"peak_source", named.peak_source}};
  if (named.speed.peak_flops) json["peak_flops"] = *named.speed.peak_flops;
  if (named.speed.ceiling_flops) json["ceiling_flops"] = *named.speed.ceiling_flops;
  return json.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

std::optional<double> rate_in(const nlohmann::json& json, const char* name) {
  if (!json.contains(name) || !json[name].is_number()) return std::nullopt;
  const double rate = json[name].get<double>();
  return std::isfinite(rate) && rate > 0 ? std::optional(rate) : std::nullopt;
}

/// Nothing if the file is missing, for another key or damaged: then it is measured again.
std::optional<NamedSpeed> kept_speed(const std::string& path, const std::string& key, const FileSystem& files) try {
  if (!files.exists(path)) return std::nullopt;
  const nlohmann::json json = nlohmann::json::parse(read_file(files, path), nullptr, false);
  if (!json.is_object() || json.value("format", 0) != kFormat || json.value("key", "") != key) return std::nullopt;
  return NamedSpeed{{.peak_flops = rate_in(json, "peak_flops"), .ceiling_flops = rate_in(json, "ceiling_flops")},
                    json.value("peak_source", "")};
} catch (const IoError&) {
  return std::nullopt;
} catch (const nlohmann::json::exception&) {  // a value of another type
  return std::nullopt;
}

void keep(const NamedSpeed& named, const std::string& path, const std::string& key, FileSystem& files) {
  files.create_directories(parent_path(path));
  replace_file(files, path, json_of(named, key));
}

KernelCeiling measure_briefly(const SpeedQuery& query) {
  BenchDevice bench(query.device.kind, query.num_threads, query.device.cuda_device, query.capacity_bytes);
  prepare_matmuls(bench.device(), query.config.precision, query.products);
  SilentProgress silent;
  return measure_ceiling(query.config, {KernelKind::kProduct, KernelKind::kAttention, KernelKind::kMemory}, bench,
                         kBrief, silent, query.most_seconds);
}

}  // namespace

DeviceSpeed device_speed(const SpeedQuery& query, FileSystem& files) try {
  const std::string key = key_of(query), path = query.cache_folder.empty() ? "" : path_of(query, key);
  const auto told = [](NamedSpeed named, const std::string& origin, const std::string& cache_file) {
    named.speed.cache_file = cache_file;
    named.speed.text = text_of(named.speed, named.peak_source, origin);
    return named.speed;
  };
  if (!path.empty())
    if (const auto kept = kept_speed(path, key, files))
      return told(*kept, fmt::format("from {} (remove it to measure again)", path), path);
  const auto begin = std::chrono::steady_clock::now();
  const NamedSpeed measured = speed_of(query, measure_briefly(query));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const std::string origin = fmt::format("measured in {:.2f} s", seconds.count());
  if (path.empty()) return told(measured, origin, "");
  try {
    keep(measured, path, key, files);
  } catch (const IoError& error) {
    return told(measured, origin + fmt::format(", not kept: {}", error.what()), "");
  }
  return told(measured, origin + fmt::format(" and kept in {} (remove it to measure again)", path), path);
} catch (const Error& error) {
  return {.text = fmt::format("MFU and percent of the kernel ceiling stay unknown, because the kernels could not be "
                              "measured: {}",
                              error.what())};
}

void keep_device_speed(const SpeedQuery& query, const KernelCeiling& ceiling, FileSystem& files) {
  if (query.cache_folder.empty()) return;
  const std::string key = key_of(query);
  keep(speed_of(query, ceiling), path_of(query, key), key, files);
}

}  // namespace megatron
