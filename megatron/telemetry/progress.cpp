#include "megatron/telemetry/progress.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace megatron {
namespace {

constexpr std::string_view kClearLine = "\r\x1b[K";
constexpr int kMaxBarColumns = 40;
constexpr int kMinBarColumns = 8;

double seconds_between(ProgressBar::Clock::time_point from, ProgressBar::Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

std::string with_unit(const std::string& text, const std::string& unit) {
  return unit.empty() ? text : text + ' ' + unit;
}

/// @param units_per_s  above 0.
std::string speed_text(double units_per_s, const std::string& unit) {
  if (units_per_s < 0.1) return fmt::format("{:.1f} s/{}", 1.0 / units_per_s, unit.empty() ? "1" : unit);
  const bool many = units_per_s >= 100;
  const std::string number = many ? count_text(std::llround(units_per_s)) : fmt::format("{:.1f}", units_per_s);
  return with_unit(number, unit) + "/s";
}

/// The task in numbers, as both forms of output show them.
struct Figures {
  std::string count;    // "230/500 it"
  std::string percent;  // "46%", "" without a total
  std::string speed;    // "2.4 it/s", "" before anything is done
  std::string time;     // "1:52 left", or "0:08" once complete or without a total
  double fraction = 0.0;
};

Figures figures_of(const ProgressTask& task, std::int64_t done, double elapsed_seconds) {
  Figures f;
  const bool has_total = task.total > 0;
  f.count = with_unit(has_total ? count_text(done) + '/' + count_text(task.total) : count_text(done), task.unit);
  if (has_total) {
    f.fraction = static_cast<double>(done) / static_cast<double>(task.total);
    f.percent = fmt::format("{:.0f}%", std::floor(100.0 * f.fraction));
  }
  const auto worked = static_cast<double>(done - task.start);
  const double speed = elapsed_seconds > 0 ? worked / elapsed_seconds : 0.0;
  if (speed > 0) f.speed = speed_text(speed, task.unit);
  if (!has_total || done >= task.total)
    f.time = duration_text(elapsed_seconds);
  else if (speed > 0)
    f.time = duration_text(static_cast<double>(task.total - done) / speed) + " left";
  return f;
}

std::string joined(std::initializer_list<std::string_view> parts, std::string_view separator) {
  std::string text;
  for (const std::string_view part : parts) {
    if (part.empty()) continue;
    if (!text.empty()) text += separator;
    text += part;
  }
  return text;
}

}  // namespace

Progress::~Progress() = default;

void Progress::warning(std::string_view text) { message(fmt::format("WARNING: {}", text)); }

void LeveledProgress::info(std::string_view line) {
  constexpr std::int64_t kInfo = 20;
  if (level_ <= kInfo) shown_.info(line);
}

void LeveledProgress::warning(std::string_view text) {
  constexpr std::int64_t kWarning = 30;
  if (level_ <= kWarning) shown_.warning(text);
}

ProgressBar::ProgressBar(ProgressBarOptions options, Write write, Now now)
    : options_(options), write_(std::move(write)), now_(std::move(now)) {}

ProgressBar::~ProgressBar() {
  try {
    end();
  } catch (...) {  // a closed terminal must not end the program
  }
}

void ProgressBar::begin(const ProgressTask& task) {
  end();
  task_ = task;
  done_ = task.start;
  note_.clear();
  began_ = now_();
  active_ = true;
  if (options_.is_terminal)
    draw();
  else
    drawn_ = began_;
}

void ProgressBar::update(std::int64_t done, std::string_view note) {
  if (!active_) return;
  done_ = done;
  note_ = note;
  const auto interval = options_.is_terminal ? options_.redraw_interval : options_.line_interval;
  if (now_() - drawn_ >= interval) draw();
}

void ProgressBar::end() {
  if (!active_) return;
  draw();
  active_ = false;
  if (options_.is_terminal) write_("\n");
}

void ProgressBar::message(std::string_view line) {
  const bool bar_shown = active_ && options_.is_terminal;
  write_(fmt::format("{}{}\n", bar_shown ? kClearLine : "", line));
  if (bar_shown) draw();
}

void ProgressBar::draw() {
  drawn_ = now_();
  const double elapsed = seconds_between(began_, drawn_);
  if (options_.is_terminal)
    write_(std::string(kClearLine) + terminal_line(elapsed));
  else
    write_(plain_line(elapsed) + '\n');
}

std::string ProgressBar::terminal_line(double elapsed_seconds) const {
  const Figures f = figures_of(task_, done_, elapsed_seconds);
  const std::string percent = f.percent.empty() ? "" : fmt::format("{:>4}", f.percent);
  std::string right = joined({percent, f.count, f.speed, f.time, note_}, "  ");
  const int available = options_.columns - 1 - static_cast<int>(task_.title.size() + 3 + right.size());
  const int bar_columns = std::min(kMaxBarColumns, available);
  if (!f.percent.empty() && bar_columns >= kMinBarColumns)
    return fmt::format("{}  {} {}", task_.title, bar_text(f.fraction, bar_columns, options_.unicode), right);
  std::string line = fmt::format("{}  {}", task_.title, right);
  // A line that wraps could not be drawn over. Titles, units and notes are plain ASCII.
  line.resize(std::min(line.size(), static_cast<std::size_t>(std::max(1, options_.columns - 1))));
  return line;
}

std::string ProgressBar::plain_line(double elapsed_seconds) const {
  const Figures f = figures_of(task_, done_, elapsed_seconds);
  const std::string percent = f.percent.empty() ? "" : fmt::format(" ({})", f.percent);
  return fmt::format("{}: {}", task_.title, joined({f.count + percent, f.speed, f.time, note_}, ", "));
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const std::int64_t s = std::llround(seconds);
  const std::int64_t days = s / 86400;
  const std::int64_t hours = s / 3600 % 24;
  if (days > 0) return fmt::format("{}d {}:{:02}:{:02}", days, hours, s / 60 % 60, s % 60);
  if (hours > 0) return fmt::format("{}:{:02}:{:02}", hours, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

std::string count_text(std::int64_t count) {
  if (count < 100'000) return fmt::format("{}", count);
  constexpr std::array kPrefixes{'k', 'M', 'G', 'T', 'P', 'E'};
  double scaled = static_cast<double>(count) / 1000.0;
  std::size_t prefix = 0;
  for (; scaled >= 999.5 && prefix + 1 < kPrefixes.size(); ++prefix) scaled /= 1000.0;
  const int decimals = scaled < 9.995 ? 2 : scaled < 99.95 ? 1 : 0;
  return fmt::format("{:.{}f}{}", scaled, decimals, kPrefixes[prefix]);
}

std::string bar_text(double fraction, int columns, bool unicode) {
  constexpr int kParts = 8;  // a cell can be filled by eighths
  constexpr std::array<std::string_view, kParts> kPartial{"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
  const int parts = static_cast<int>(std::floor(std::clamp(fraction, 0.0, 1.0) * columns * kParts));
  const int full = parts / kParts;
  if (!unicode) return fmt::format("{:#<{}}{:-<{}}", "", full, "", columns - full);
  std::string bar;
  for (int i = 0; i < full; ++i) bar += "█";
  const std::string_view partial = kPartial[static_cast<std::size_t>(parts % kParts)];
  bar += partial;
  bar.append(static_cast<std::size_t>(columns - full - (partial.empty() ? 0 : 1)), ' ');
  return bar;
}

}  // namespace megatron
