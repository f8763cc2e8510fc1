#include "megatron/pipeline_parallel/schedule_chart.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {
namespace {

std::string label_of(const Action& a, const ScheduleChart& chart) {
  const char letter = a.kind == ActionKind::kF ? 'F' : a.kind == ActionKind::kW ? 'W' : 'B';
  return chart.num_chunks > 1 ? fmt::format("{}{}.{}", letter, a.micro_batch, a.chunk)
                              : fmt::format("{}{}", letter, a.micro_batch);
}

/// Properties of all actions of a simulation.
struct Extent {
  double shortest = 0, longest = 0;  // time of an action, except those without time
  size_t longest_label = 0;
};

Extent extent_of(const Simulation& simulation, const ScheduleChart& chart) {
  Extent extent;
  for (const RankTimeline& rank : simulation.ranks)
    for (const TimedAction& timed : rank.actions) {
      const double time = timed.end - timed.start;
      extent.longest_label = std::max(extent.longest_label, label_of(timed.action, chart).size());
      if (time <= 0) continue;
      extent.shortest = extent.shortest > 0 ? std::min(extent.shortest, time) : time;
      extent.longest = std::max(extent.longest, time);
    }
  return extent;
}

/// A rank's step as one line: "F0 F1 ......B0--- ".
std::string line_of(const RankTimeline& rank, const ScheduleChart& chart, double columns_per_time, size_t width) {
  std::string line(width, '.');
  const auto column = [&](double time) { return static_cast<size_t>(std::llround(time * columns_per_time)); };
  for (const TimedAction& timed : rank.actions) {
    const size_t begin = column(timed.start), end = std::min(column(timed.end), width);
    if (end <= begin) continue;
    std::string cell = label_of(timed.action, chart).substr(0, end - begin);
    if (cell.size() < end - begin) cell += std::string(end - begin - cell.size() - 1, '-') + ' ';
    line.replace(begin, end - begin, cell);
  }
  return line;
}

}  // namespace

constexpr double kMostCharacters = 1e7;  // of a readable text

std::string text_of(const Simulation& simulation, const ScheduleChart& chart, int max_columns) {
  require<ConfigError>(max_columns >= 40, "[text_of] {} columns: give at least 40.", max_columns);
  const Extent extent = extent_of(simulation, chart);
  if (extent.shortest <= 0) return "";
  // The shortest action has room for its name, unless others would become too long.
  const double cell = static_cast<double>(extent.longest_label) + 1;
  const double columns_per_time = std::min(cell / extent.shortest, 8 * cell / extent.longest);
  const double columns = std::ceil(simulation.makespan * columns_per_time);
  if (!(columns * static_cast<double>(simulation.ranks.size()) <= kMostCharacters))
    return fmt::format(
        "(not drawn: actions take {:.3g} to {:.3g} of a step of {:.3g}, too little to be visible in a text)\n",
        extent.shortest, extent.longest, simulation.makespan);
  const auto width = static_cast<size_t>(columns);
  const std::string last_name = fmt::format("rank {} ", simulation.ranks.size() - 1);
  // Bands have whole actions if all take equal time.
  const size_t room = static_cast<size_t>(max_columns) - last_name.size();
  const size_t shortest = std::max<size_t>(static_cast<size_t>(std::lround(extent.shortest * columns_per_time)), 1);
  const size_t band = shortest < room ? room - room % shortest : room;
  std::vector<std::string> lines;
  for (const RankTimeline& rank : simulation.ranks) lines.push_back(line_of(rank, chart, columns_per_time, width));
  std::string text;
  for (size_t begin = 0; begin < width; begin += band) {
    if (width > band)
      text += fmt::format("{}from time {:.6g}\n", begin > 0 ? "\n" : "", static_cast<double>(begin) / columns_per_time);
    for (size_t rank = 0; rank < lines.size(); ++rank)
      text += fmt::format("{:{}}{}\n", fmt::format("rank {}", rank), last_name.size(), lines[rank].substr(begin, band));
  }
  return text;
}

namespace {

// Sizes in pixels of the picture's own coordinates.
constexpr double kLeft = 76, kRightMargin = 164, kTop = 96, kRowHeight = 26, kRowGap = 6, kMargin = 24;
constexpr double kLeastWidth = 560, kMostWidth = 1600;  // of the step
constexpr double kCharacterWidth = 6.2;                 // of the small font

struct Kind {
  std::string_view css_class, text, light, dark;
};
constexpr std::array<Kind, 4> kKinds{{{"f", "forward", "#60a5fa", "#3b82f6"},
                                      {"b", "gradient of inputs", "#34d399", "#059669"},
                                      {"w", "gradient of weights", "#fbbf24", "#d97706"},
                                      {"bw", "both gradients", "#2dd4bf", "#0d9488"}}};
const Kind& kind_of(const Action& a) { return kKinds[static_cast<size_t>(a.kind)]; }

/// Collects the elements of the file.
class Canvas {
 public:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
    text_ += '\n';
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

std::string escaped(std::string_view text) {
  std::string result;
  for (char c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else
      result += c;
  }
  return result;
}

void add_style(Canvas& canvas) {
  canvas.add("<style>");
  canvas.add("text{{font-family:-apple-system,'Segoe UI',Helvetica,Arial,'DejaVu Sans',sans-serif;font-size:12px}}");
  canvas.add(".card{{fill:#ffffff;stroke:#d0d7de}} .title{{fill:#1f2328;font-size:18px;font-weight:600}}");
  canvas.add(".muted{{fill:#656d76}} .idle{{fill:#f0f2f4}} .name{{font-size:10px;fill:#0b1f33}} .odd{{opacity:.62}}");
  for (const Kind& kind : kKinds) canvas.add(".{}{{fill:{}}}", kind.css_class, kind.light);
  canvas.add("@media (prefers-color-scheme:dark){{");
  canvas.add(".card{{fill:#0d1117;stroke:#30363d}} .title{{fill:#e6edf3}} .muted{{fill:#8d96a0}}");
  canvas.add(".idle{{fill:#1c2128}} .name{{fill:#f0f6fc}}");
  for (const Kind& kind : kKinds) canvas.add(".{}{{fill:{}}}", kind.css_class, kind.dark);
  canvas.add("}}");
  canvas.add("</style>");
}

void add_action(Canvas& canvas, const TimedAction& timed, const ScheduleChart& chart, double scale, double y) {
  const Action& a = timed.action;
  const double x = kLeft + timed.start * scale, width = (timed.end - timed.start) * scale;
  const Kind& kind = kind_of(a);
  canvas.add(R"(<rect class="{}{}" x="{:.2f}" y="{:.1f}" width="{:.2f}" height="{}" rx="2">)", kind.css_class,
             a.chunk % 2 == 1 ? " odd" : "", x, y, std::max(width - 1, 0.4), kRowHeight);
  canvas.add("<title>{} of micro-batch {}, chunk {}: {:.6g} to {:.6g}</title></rect>", kind.text, a.micro_batch,
             a.chunk, timed.start, timed.end);
  std::string label = label_of(a, chart).substr(1);
  if (static_cast<double>(label.size()) * kCharacterWidth > width) label = fmt::format("{}", a.micro_batch);
  if (static_cast<double>(label.size()) * kCharacterWidth <= width)
    canvas.add(R"(<text class="name" x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)", x + (width - 1) / 2,
               y + kRowHeight / 2 + 3.5, label);
}

void add_legend(Canvas& canvas, const Simulation& simulation, const ScheduleChart& chart, double y) {
  double x = kLeft;
  for (size_t k = 0; k < kKinds.size(); ++k) {
    const bool used = std::ranges::any_of(simulation.ranks, [&](const RankTimeline& rank) {
      return std::ranges::any_of(rank.actions, [&](const TimedAction& t) { return &kind_of(t.action) == &kKinds[k]; });
    });
    if (!used) continue;
    canvas.add(R"(<rect class="{}" x="{:.1f}" y="{:.1f}" width="14" height="14" rx="2"/>)", kKinds[k].css_class, x, y);
    canvas.add(R"(<text class="muted" x="{:.1f}" y="{:.1f}">{}</text>)", x + 20, y + 11, kKinds[k].text);
    x += 44 + 6.6 * static_cast<double>(kKinds[k].text.size());
  }
  const std::string_view numbers =
      chart.num_chunks > 1 ? "3.1 is micro-batch 3 in chunk 1; odd chunks are lighter" : "3 is micro-batch 3";
  canvas.add(R"(<text class="muted" x="{:.1f}" y="{:.1f}">{}</text>)", kLeft, y + 33, numbers);
}

}  // namespace

std::string svg_of(const Simulation& simulation, const ScheduleChart& chart) {
  const Extent extent = extent_of(simulation, chart);
  const double room = kCharacterWidth * static_cast<double>(extent.longest_label);
  const double wanted = extent.shortest > 0 ? simulation.makespan * room / extent.shortest : 0;
  const double step_width = std::clamp(wanted, kLeastWidth, kMostWidth);
  const double scale = simulation.makespan > 0 ? step_width / simulation.makespan : 0;
  const double rows_height = static_cast<double>(simulation.ranks.size()) * (kRowHeight + kRowGap);
  const double width = kLeft + step_width + kRightMargin, height = kTop + rows_height + 66;
  Canvas canvas;
  canvas.add(
      R"(<svg xmlns="http://www.w3.org/2000/svg" width="{0:.0f}" height="{1:.0f}" viewBox="0 0 {0:.0f} {1:.0f}" role="img">)",
      width, height);
  canvas.add("<title>{}</title>", escaped(chart.title));
  add_style(canvas);
  canvas.add(R"(<rect class="card" x=".5" y=".5" width="{:.0f}" height="{:.0f}" rx="10"/>)", width - 1, height - 1);
  canvas.add(R"(<text class="title" x="{}" y="38">{}</text>)", kMargin, escaped(chart.title));
  canvas.add(R"(<text class="muted" x="{}" y="58">{}</text>)", kMargin, escaped(chart.subtitle));
  canvas.add(R"(<text class="muted" x="{:.1f}" y="{:.1f}">idle</text>)", kLeft + step_width + 14, kTop - 10);
  canvas.add(R"(<text class="muted" x="{:.1f}" y="{:.1f}">peak chunks</text>)", kLeft + step_width + 66, kTop - 10);
  for (size_t r = 0; r < simulation.ranks.size(); ++r) {
    const RankTimeline& rank = simulation.ranks[r];
    const double y = kTop + static_cast<double>(r) * (kRowHeight + kRowGap), text_y = y + kRowHeight / 2 + 4;
    canvas.add(R"(<text class="muted" x="{:.1f}" y="{:.1f}" text-anchor="end">rank {}</text>)", kLeft - 10, text_y, r);
    canvas.add(R"(<rect class="idle" x="{}" y="{:.1f}" width="{:.1f}" height="{}"/>)", kLeft, y, step_width,
               kRowHeight);
    for (const TimedAction& timed : rank.actions) add_action(canvas, timed, chart, scale, y);
    canvas.add(R"(<text class="muted" x="{:.1f}" y="{:.1f}">{:.1f} %</text>)", kLeft + step_width + 14, text_y,
               simulation.makespan > 0 ? 100 * simulation.bubble(static_cast<int>(r)) / simulation.makespan : 0);
    canvas.add(R"(<text class="muted" x="{:.1f}" y="{:.1f}">{:.4g}</text>)", kLeft + step_width + 66, text_y,
               rank.peak_activations);
  }
  add_legend(canvas, simulation, chart, kTop + rows_height + 12);
  canvas.add("</svg>");
  return canvas.take();
}

}  // namespace megatron
