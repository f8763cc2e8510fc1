// Lines of JSON with the answers of reference tokenizers.
#pragma once

#include <gtest/gtest.h>
#include <simdjson.h>

#include <fstream>
#include <string>
#include <vector>

#include "megatron/tokenizers/tokenizer.h"

namespace megatron::testing {

using JsonRow = simdjson::dom::element;

inline bool has(JsonRow row, const char* field) { return row[field].error() == simdjson::SUCCESS; }
inline std::string text_of(JsonRow row, const char* field) { return std::string(row[field].get_string().value()); }
/// The text of the first of two fields that the row has.
inline std::string text_of(JsonRow row, const char* field, const char* otherwise) {
  return text_of(row, has(row, field) ? field : otherwise);
}
inline std::vector<TokenId> ids_of(JsonRow row, const char* field) {
  std::vector<TokenId> ids;
  for (const JsonRow id : row[field].get_array()) ids.push_back(static_cast<TokenId>(int64_t{id}));
  return ids;
}

/// Calls `function(JsonRow)` for each line of the file. A file without lines is a failure of the test.
/// @return the number of lines
template <class Function>
int64_t for_each_row(const std::string& path, Function&& function) {
  simdjson::dom::parser parser;
  std::ifstream file(path);
  int64_t num_rows = 0;
  for (std::string line; std::getline(file, line); ++num_rows) function(parser.parse(line).value());
  EXPECT_GT(num_rows, 0) << path;
  return num_rows;
}

}  // namespace megatron::testing
