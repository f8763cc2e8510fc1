// Where the data sets report what they do; the library itself never prints.
#pragma once

#include <functional>
#include <string>

namespace megatron {

/// Receivers of messages about building and loading data sets. Either may be empty. They are called from one thread at
/// a time.
struct DatasetLog {
  std::function<void(const std::string&)> on_info;
  std::function<void(const std::string&)> on_warning;

  void info(const std::string& text) const {
    if (on_info) on_info(text);
  }
  void warning(const std::string& text) const {
    if (on_warning) on_warning(text);
  }
};

}  // namespace megatron
