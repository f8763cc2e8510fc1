// Pipeline layouts as text: --pipeline-model-parallel-layout.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "megatron/pipeline_parallel/pipeline_layout.h"

namespace megatron {

struct LayoutStringOptions {
  int num_ranks = 1;
  int64_t num_layers = 0;      ///< decoder layers of the model
  int64_t num_mtp_layers = 0;  ///< layers that predict further tokens
  StageOrder order = StageOrder::kLoop;
};

/// Reads a layout such as "Ett|(ttt|)*6tt|mL". `|` ends a virtual stage; E embedding, t decoder layer, m layer that
/// predicts a further token, L loss; commas mean nothing. `(..)*n` repeats a group, `x*n` one character: groups first,
/// each once from left to right, without nesting. The number of stages over num_ranks is the number of chunks.
/// Megatron Core: transformer/pipeline_parallel_layer_layout.py.
/// @throw ConfigError listing all mistakes. Rejected, although Megatron accepts it: E not in the first virtual stage or
/// L not in the last one, where Megatron builds embedding and loss wherever the text has them.
PipelineLayout parse_layout(std::string_view text, const LayoutStringOptions& options);
/// Like parse_layout, but adds to `mistakes`. @return nothing if there are mistakes.
std::optional<PipelineLayout> parse_layout(std::string_view text, const LayoutStringOptions& options,
                                           Mistakes& mistakes);

/// "Et*3|t*4|t*2L", the form that parse_layout reads.
std::string to_string(const PipelineLayout& layout);

}  // namespace megatron
