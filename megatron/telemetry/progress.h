// Progress of long tasks: an interface for the task, and a bar or plain lines for the user.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace megatron {

/// A task that counts its units.
struct ProgressTask {
  std::string title;       // "training"
  std::string unit = "";   // "it", "docs", "MB"; "" for none
  std::int64_t total = 0;  // 0 if not known beforehand
  std::int64_t start = 0;  // units done before this run, for work that is resumed; they do not count for the speed
};

/// Sink for the progress of one task after another. Called by one thread at a time.
class Progress {
 public:
  virtual ~Progress();

  virtual void begin(const ProgressTask& task) = 0;
  /// @param done  units done of the task's total. @param note  additional text, such as "lm loss 2.31".
  virtual void update(std::int64_t done, std::string_view note) = 0;
  /// The task is over, completed or not.
  virtual void end() = 0;
  /// Prints a line that stays, above the bar. No line end is needed.
  virtual void message(std::string_view line) = 0;
  /// A message that --logging-level may leave out.
  virtual void info(std::string_view line) { message(line); }
  /// A message that begins with "WARNING: ".
  virtual void warning(std::string_view text);
};

/// Passes on messages from a level of Python's logging module on: information has 20, warnings have 30.
class LeveledProgress final : public Progress {
 public:
  LeveledProgress(Progress& shown, std::int64_t level) : shown_(shown), level_(level) {}
  void begin(const ProgressTask& task) override { shown_.begin(task); }
  void update(std::int64_t done, std::string_view note) override { shown_.update(done, note); }
  void end() override { shown_.end(); }
  void message(std::string_view line) override { shown_.message(line); }
  void info(std::string_view line) override;
  void warning(std::string_view text) override;

 private:
  Progress& shown_;
  std::int64_t level_;
};

/// Shows nothing, no messages either.
class SilentProgress final : public Progress {
 public:
  void begin(const ProgressTask&) override {}
  void update(std::int64_t, std::string_view) override {}
  void end() override {}
  void message(std::string_view) override {}
};

struct ProgressBarOptions {
  bool is_terminal = false;  // isatty() of the output: a bar that is redrawn; otherwise occasional lines
  int columns = 80;          // width of the terminal
  bool unicode = true;       // draw with block characters; otherwise with # and -
  std::chrono::milliseconds redraw_interval{100};   // on a terminal
  std::chrono::milliseconds line_interval{10'000};  // elsewhere
};

/// On a terminal:  training  ██████▌        46%  230/500 it  2.4 it/s  1:52 left  lm loss 2.31
/// Elsewhere:      training: 230/500 it (46%), 2.4 it/s, 1:52 left, lm loss 2.31
class ProgressBar final : public Progress {
 public:
  using Clock = std::chrono::steady_clock;
  using Write = std::function<void(std::string_view)>;
  using Now = std::function<Clock::time_point()>;

  /// @param write  receives the text to print, and flushes it.
  ProgressBar(ProgressBarOptions options, Write write, Now now = Clock::now);
  /// Leaves the terminal on a fresh line.
  ~ProgressBar() override;
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;

  void begin(const ProgressTask& task) override;
  void update(std::int64_t done, std::string_view note) override;
  void end() override;
  void message(std::string_view line) override;

 private:
  void draw();
  std::string terminal_line(double elapsed_seconds) const;
  std::string plain_line(double elapsed_seconds) const;

  ProgressBarOptions options_;
  Write write_;
  Now now_;
  bool active_ = false;
  ProgressTask task_;
  std::int64_t done_ = 0;
  std::string note_;
  Clock::time_point began_;
  Clock::time_point drawn_;
};

/// "0:07", "1:52", "2:03:04", "3d 4:05:06"; negative or not finite gives "?".
std::string duration_text(double seconds);

/// Three digits and a unit prefix from 100000 up: "99999", "1.12M", "3.40G".
std::string count_text(std::int64_t count);

/// A row of `columns` cells, of which `fraction` (cut to 0..1) is filled.
std::string bar_text(double fraction, int columns, bool unicode);

}  // namespace megatron
