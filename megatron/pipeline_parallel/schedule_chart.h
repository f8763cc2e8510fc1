// Pictures of simulated schedules: rows are ranks, columns are time.
#pragma once

#include <string>

#include "megatron/pipeline_parallel/simulator.h"

namespace megatron {

struct ScheduleChart {
  std::string title;     ///< of the SVG
  std::string subtitle;  ///< of the SVG
  int num_chunks = 1;    ///< above 1, actions are named with their chunk: F3.1
};

/// Lines of text. F3 is the forward of micro-batch 3, F3.1 that on chunk 1; likewise B and W, and a B without W is both
/// gradients. Dots are idle time. Long steps continue in further bands of at most `max_columns` characters.
std::string text_of(const Simulation& simulation, const ScheduleChart& chart, int max_columns);

/// A whole SVG file. Colors follow the reader's prefers-color-scheme; odd chunks are paler.
std::string svg_of(const Simulation& simulation, const ScheduleChart& chart);

}  // namespace megatron
