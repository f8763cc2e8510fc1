// The library reports here what it does; it never prints itself.
#pragma once

#include <functional>
#include <string>

namespace megatron {

/// Receivers of messages, such as of data sets that are built and checkpoints that are loaded. Either may be empty.
/// They are called from one thread at a time.
struct MessageLog {
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
