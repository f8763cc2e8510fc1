#include "megatron/datasets/jsonl_rows.h"

#include <algorithm>

namespace megatron {

JsonlRows::JsonlRows(const std::string& path) : path_(path), file_(path, FileAccess::kMap) {
  const std::string_view all = text();
  for (size_t begin = 0; begin < all.size();) {
    const size_t end = std::min(all.find('\n', begin), all.size());
    if (all.find_first_not_of(" \t\r", begin) < end) begins_.push_back(begin);
    begin = end + 1;
  }
}

std::string_view JsonlRows::text() const {
  const std::span<const std::byte> bytes = file_.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string_view JsonlRows::row(int64_t index) const {
  const std::string_view from = text().substr(begins_[static_cast<size_t>(index)]);
  return from.substr(0, from.find('\n'));
}

int64_t JsonlRows::line_number(int64_t index) const {
  const std::string_view before = text().substr(0, begins_[static_cast<size_t>(index)]);
  return 1 + std::count(before.begin(), before.end(), '\n');
}

}  // namespace megatron
