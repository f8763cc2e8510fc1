#include "megatron/core/context_cut.h"

#include <algorithm>

#include "megatron/base/error.h"

namespace megatron {

std::vector<PositionRange> documents_of(std::span<const int32_t> cuts, int64_t length) {
  std::vector<PositionRange> documents;
  int64_t begin = 0;
  for (const int32_t cut : cuts) {
    require<ShapeError>(cut >= begin && cut <= length, "[ContextCut] cuts of a sample must ascend up to {}.", length);
    if (cut > begin) documents.push_back({begin, cut});
    begin = cut;
  }
  if (begin < length) documents.push_back({begin, length});
  return documents;
}

void ContextCut::check() const {
  require<ShapeError>(rank >= 0 && rank < size, "[ContextCut] there is no rank {} of {}.", rank, size);
  require<ShapeError>(
      length % (2 * size) == 0,
      "[ContextCut] sequences of {} tokens are not divisible by 2 * {} context-parallel ranks: each holds "
      "two chunks. Choose another --seq-length or --context-parallel-size.",
      length, size);
}

std::vector<PositionRange> ContextCut::units_of(std::span<const int32_t> cuts) const {
  std::vector<PositionRange> documents = documents_of(cuts, length);
  const auto divides = [&](const PositionRange& document) { return document.size() % (2 * size) == 0; };
  if (std::ranges::all_of(documents, divides)) return documents;
  return {{0, length}};
}

std::vector<PositionRange> ContextCut::runs_of(std::span<const PositionRange> units) const {
  std::vector<PositionRange> runs;
  for (const PositionRange& unit : units) {
    const int64_t chunk_length = unit.size() / (2 * size);
    for (const int64_t chunk : chunks()) {
      const int64_t begin = unit.begin + chunk * chunk_length;
      runs.push_back({begin, begin + chunk_length});
    }
  }
  return runs;
}

}  // namespace megatron
