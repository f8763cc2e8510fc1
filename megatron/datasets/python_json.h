// JSON text exactly as Python's json.dumps(value, indent=4) writes it: names of cache files are its MD5.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace megatron {

/// repr() of a Python float: the shortest text that reads back as the same double, such as 0.969, 1.0, 1e-05.
std::string python_float(double value);

/// Builds one JSON value from calls in order of appearance.
///
///   PythonJson json;
///   json.begin_object().key("size").integer(3).end_object();
///   json.text();   // "{\n    \"size\": 3\n}"
class PythonJson {
 public:
  PythonJson& begin_object() { return open('{'); }
  PythonJson& end_object() { return close('}'); }
  PythonJson& begin_array() { return open('['); }
  PythonJson& end_array() { return close(']'); }
  PythonJson& key(std::string_view name);
  /// UTF-8; what is not ASCII is escaped. Bytes that are not UTF-8 become lone surrogates, as in Python's file names.
  PythonJson& string(std::string_view value);
  PythonJson& integer(int64_t value);
  PythonJson& number(double value);
  PythonJson& null();

  const std::string& text() const { return text_; }

 private:
  PythonJson& open(char bracket);
  PythonJson& close(char bracket);
  PythonJson& value(std::string_view text);
  void start_value();
  void start_line();

  std::string text_;
  std::vector<bool> has_items_;  // for each open bracket: whether it has items
  bool after_key_ = false;
};

}  // namespace megatron
