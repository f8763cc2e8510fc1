#include "commands/plot_losses.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <ostream>

#include "commands/exit_code.h"
#include "commands/terminal.h"
#include "megatron/base/command_help.h"
#include "megatron/base/field.h"
#include "megatron/base/file_system.h"
#include "megatron/base/flag_parser.h"
#include "megatron/base/mistakes.h"
#include "megatron/telemetry/loss_curve.h"
#include "megatron/telemetry/svg_chart.h"
#include "megatron/training/config/flag_synonyms.h"

namespace megatron {
namespace {

constexpr std::string_view kPlotLosses = "plot_losses";
constexpr std::string_view kPlotLossesUsage =
    R"(usage: megatron plot_losses --output FILE --runs NAME=FILE...

Draws the training losses of several runs, or other numbers of the files of --log-jsonl, on one SVG picture, and prints
their largest difference.

  megatron plot_losses --output losses.svg --runs "1 rank=one.jsonl" "DP4=four.jsonl"
  megatron plot_losses --output loads.svg --runs experts=log.jsonl --y-label "load over mean" \
      --values moe/max_load_layer_0 moe/min_load_layer_0

)";

struct PlotConfig {
  std::string output, title = "Training loss", y_label = "lm loss";
  std::vector<std::string> runs, values = {"lm_loss"};
};

FieldTable describe(PlotConfig& config) {
  FieldTable table;
  table.begin_group("Picture", "");
  table.add("output", config.output, "the SVG file");
  table.add("title", config.title, "title of the picture");
  table.add("y_label", config.y_label, "text at the vertical axis");
  table.add("values", config.values, "numbers to draw, by their names in the files");
  table.add("runs", config.runs, "NAME=FILE: name in the legend, and file of JSON lines");
  return table;
}

using Values = std::map<int64_t, double>;  // by iteration

struct Run {
  std::string name;
  std::vector<Values> values;  // of each number
};

Run read_run(const std::string& name, const std::string& path, const PlotConfig& config, const FileSystem& files) {
  Run run{.name = name, .values = {}};
  const std::string json_lines = read_file(files, path);
  for (const std::string& value : config.values) {
    try {
      run.values.push_back(parse_training_values(json_lines, value));
    } catch (const DataError& error) {
      throw DataError(fmt::format("--runs {}={}: {} Give a file that --log-jsonl wrote.", name, path, error.what()));
    }
    require<DataError>(!run.values.back().empty(), "--runs {}: the file has no {}.", name, value);
  }
  return run;
}

std::vector<Run> read_runs(const PlotConfig& config, const FileSystem& files) {
  std::vector<Run> runs;
  Mistakes mistakes;
  if (config.output.empty()) mistakes.add({"--output"}, "--output: name the SVG file");
  if (config.runs.empty()) mistakes.add({"--runs"}, "--runs: give at least one NAME=FILE");
  for (const std::string& text : config.runs) {
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0)
      mistakes.add({"--runs"}, "--runs {}: write NAME=FILE", text);
    else
      runs.push_back(read_run(text.substr(0, equals), text.substr(equals + 1), config, files));
  }
  mistakes.throw_if_any("the flags are wrong");
  return runs;
}

/// Largest difference from the first run at iterations that both have.
double distance(const Values& first, const Values& other) {
  double largest = 0;
  for (const auto& [iteration, value] : other) {
    const auto same = first.find(iteration);
    if (same != first.end()) largest = std::max(largest, std::abs(value - same->second));
  }
  return largest;
}

/// In the legend: what distinguishes it.
std::string name_of(const PlotConfig& config, const Run& run, size_t value) {
  if (config.values.size() == 1) return run.name;
  return config.runs.size() == 1 ? config.values[value] : run.name + " " + config.values[value];
}

void plot(const PlotConfig& config, std::ostream& out) {
  PosixFileSystem files;
  const std::vector<Run> runs = read_runs(config, files);
  LineChart chart{.title = config.title, .x_label = "iteration", .y_label = config.y_label};
  for (const Run& run : runs)
    for (size_t i = 0; i < config.values.size(); ++i) {
      ChartSeries series{.name = name_of(config, run, i), .color = static_cast<int>(chart.series.size())};
      for (const auto& [iteration, value] : run.values[i])
        series.points.push_back({static_cast<double>(iteration), value});
      out << fmt::format("{}: {} values, the last {:.6f}, at most {:.3g} from {}\n", series.name, series.points.size(),
                         series.points.back().y, distance(runs.front().values[i], run.values[i]), runs.front().name);
      chart.series.push_back(std::move(series));
    }
  replace_file(files, config.output, svg_text(chart));
  out << "wrote " << config.output << '\n';
}

}  // namespace

int plot_losses_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err) {
  return run_command(kPlotLosses, err, [&] {
    PlotConfig config;
    FieldTable table = describe(config);
    if (asks_for_help(args))
      return show_text(
          help_text({.command = "megatron plot_losses", .introduction = std::string(kPlotLossesUsage), .table = table},
                    args),
          out);
    Mistakes mistakes;
    parse_flags(table, args, {.synonyms = flag_synonyms()}, mistakes);
    mistakes.throw_if_any("the flags are wrong");
    plot(config, out);
  });
}

}  // namespace megatron
