#include "commands/plan.h"

#include <fmt/core.h>

#include <algorithm>
#include <ostream>
#include <span>

#include "commands/exit_code.h"
#include "commands/plan_config.h"
#include "commands/plan_memory.h"
#include "commands/terminal.h"
#include "megatron/base/command_help.h"
#include "megatron/base/file_system.h"
#include "megatron/pipeline_parallel/layout_string.h"
#include "megatron/pipeline_parallel/schedule_chart.h"

namespace megatron {
namespace {

std::string title_of(const ScheduleOptions& o) {
  return fmt::format("{}: {} rank{}{}, {} micro-batch{}{}", name_of(o.kind), o.num_ranks, o.num_ranks == 1 ? "" : "s",
                     o.num_chunks > 1 ? fmt::format(" x {} virtual stages", o.num_chunks) : "", o.num_micro_batches,
                     o.num_micro_batches == 1 ? "" : "es", o.forward_only ? ", evaluation" : "");
}

double idle_percent(const Simulation& simulation, int rank) {
  return simulation.makespan > 0 ? 100 * simulation.bubble(rank) / simulation.makespan : 0;
}

double largest_peak(const Simulation& simulation) {
  return std::ranges::max(simulation.ranks, {}, &RankTimeline::peak_activations).peak_activations;
}

std::string summary_of(const Simulation& simulation, int num_chunks) {
  return fmt::format("time {:.6g}, bubble {:.1f} % of all ranks' time, at most {:.4g} micro-batches' activations alive",
                     simulation.makespan, 100 * simulation.bubble_fraction(), largest_peak(simulation) / num_chunks);
}

/// "layers 0-4, 15-19", the layers of a rank's chunks.
std::string layers_of(const PipelineLayout& layout, int rank) {
  std::string text;
  for (int chunk = 0; chunk < layout.placement().num_chunks(); ++chunk) {
    const StageLayers& stage = layout.at({.rank = rank, .chunk = chunk});
    text += chunk > 0 ? " | " : "";
    std::string part;
    const auto add = [&](const std::string& what) { part += (part.empty() ? "" : " + ") + what; };
    if (stage.has_embedding) add("embedding");
    if (stage.num_layers == 1) add(fmt::format("{}", stage.first_layer));
    if (stage.num_layers > 1) add(fmt::format("{}-{}", stage.first_layer, stage.first_layer + stage.num_layers - 1));
    if (stage.has_head) add("loss");
    text += part.empty() ? "nothing" : part;
  }
  return text;
}

/// Flags of pretrain_gpt that train with the plan's layout and schedule. @param plan with a layout
std::string flags_of(const Plan& plan) {
  const ScheduleOptions& schedule = plan.schedule;
  std::string flags = fmt::format("--pipeline-model-parallel-size {} --pipeline-model-parallel-layout '{}'",
                                  schedule.num_ranks, to_string(*plan.layout));
  const ScheduleKind unasked = schedule.num_chunks > 1 ? ScheduleKind::kInterleaved : ScheduleKind::kOneFOneB;
  if (schedule.kind != unasked) flags += fmt::format(" --pipeline-schedule {}", name_of(schedule.kind));
  if (schedule.micro_batch_group_size)
    flags += fmt::format(" --microbatch-group-size-per-virtual-pipeline-stage {}", *schedule.micro_batch_group_size);
  return flags;
}

void print_ranks(const Plan& plan, const Simulation& simulation, std::ostream& out) {
  const int v = plan.schedule.num_chunks;
  out << fmt::format("\n{:>6}{:>10}{:>10}{:>9}{:>14}{}\n", "rank", "busy", "idle", "idle %",
                     v > 1 ? "peak chunks" : "peak", plan.layout ? "   layers" : "");
  for (int r = 0; r < plan.schedule.num_ranks; ++r) {
    const RankTimeline& rank = simulation.ranks[static_cast<size_t>(r)];
    out << fmt::format("{:>6}{:>10.6g}{:>10.5g}{:>9.1f}{:>14.4g}{}\n", r, rank.busy, simulation.bubble(r) + 0.0,
                       idle_percent(simulation, r), rank.peak_activations,
                       plan.layout ? "   " + layers_of(*plan.layout, r) : "");
  }
  if (plan.layout) out << "train with " << flags_of(plan) << '\n';
}

/// Prints the other schedules with the same ranks, micro-batches and times.
void print_others(const PlanConfig& config, const Plan& plan, std::ostream& out) {
  out << fmt::format("\n{:<30}{:>12}{:>10}{:>22}\n", "schedules at this size", "time", "bubble %",
                     "peak micro-batches");
  for (const auto& [kind, name] : names_of_enum(ScheduleKind{})) {
    ScheduleOptions options = plan.schedule;
    options.kind = kind;
    const bool is_interleaved = kind == ScheduleKind::kInterleaved;
    options.num_chunks = traits_of(kind).num_chunks.value_or(std::max(plan.schedule.num_chunks, 2));
    if (!is_interleaved) options.micro_batch_group_size.reset();
    Mistakes mistakes;
    check_schedule(options, mistakes);
    const std::string title =
        options.num_chunks > 1 ? fmt::format("{}, {} stages a rank", name, options.num_chunks) : std::string(name);
    if (!mistakes.empty()) {
      out << fmt::format("{:<30}{:>12}\n", title, "does not fit");
      continue;
    }
    const StagePlacement placement = placement_of(options);
    const Simulation other = simulate(make_schedules(options), placement,
                                      {.costs = stage_costs(config, placement, std::nullopt),
                                       .send_latency = config.send_time,
                                       .kept_for_weight = config.kept_for_weight});
    out << fmt::format("{:<30}{:>12.6g}{:>10.1f}{:>22.4g}\n", title, other.makespan, 100 * other.bubble_fraction(),
                       largest_peak(other) / options.num_chunks);
  }
}

void write_svg(const std::string& path, const std::string& svg) {
  PosixFileSystem files;
  const auto file = files.open_for_writing(path, WriteMode::kTruncate);
  file->append(std::as_bytes(std::span(svg)));
  file->close();
}

void show_schedule(const PlanConfig& config, std::ostream& out) {
  const Plan plan = plan_of(config);
  const StagePlacement placement = placement_of(plan.schedule);
  const Simulation simulation = simulate(make_schedules(plan.schedule), placement, plan.simulation);
  const ScheduleChart chart{.title = title_of(plan.schedule),
                            .subtitle = summary_of(simulation, plan.schedule.num_chunks),
                            .num_chunks = plan.schedule.num_chunks};
  if (config.schedule_svg) write_svg(*config.schedule_svg, svg_of(simulation, chart));
  out << chart.title << '\n' << chart.subtitle << "\n\n";
  out << text_of(simulation, chart, static_cast<int>(config.text_columns));
  print_ranks(plan, simulation, out);
  if (!plan.layout) print_others(config, plan, out);
  if (config.schedule_svg) out << "\nwrote " << *config.schedule_svg << '\n';
}

}  // namespace

int plan_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err) {
  const bool is_of_memory = std::ranges::count(args, kPlanMemory) > 0;
  return run_command("plan", err, [&] {
    if (asks_for_help(args)) return show_text(is_of_memory ? plan_memory_help(args) : plan_help(args), out);
    if (is_of_memory) return show_memory_plan(args, out);
    show_schedule(parse_plan(args), out);
  });
}

}  // namespace megatron
