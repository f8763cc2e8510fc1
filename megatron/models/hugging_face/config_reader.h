// Reads a config.json and collects what cannot be converted, so that all of it is reported at once.
#pragma once

#include <fmt/core.h>

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "megatron/models/hugging_face/family.h"

namespace megatron::hugging_face {

/// Remembers which keys were read: those that nobody reads may change the computation. Not thread-safe.
class ConfigReader {
 public:
  /// @param config  a JSON object, which must outlive the reader.
  explicit ConfigReader(const Json& config) : config_(config) {}

  /// The value of a key, which counts as read; null where the key is missing.
  const Json& at(std::string_view key);
  bool has(std::string_view key) { return !at(key).is_null(); }
  /// Says whether the key is there; its value may be null.
  bool names(std::string_view key) const { return config_.contains(key); }
  int64_t integer(std::string_view key, int64_t otherwise);
  double number(std::string_view key, double otherwise);
  /// A number such as 10000.0 for a setting that takes whole numbers.
  int64_t integer_number(std::string_view key, double otherwise);
  bool flag(std::string_view key, bool otherwise);
  std::string text(std::string_view key, std::string_view otherwise);

  template <class... Args>
  void reject(fmt::format_string<Args...> format, Args&&... args) {
    mistakes_.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
  const std::vector<std::string>& mistakes() const { return mistakes_; }
  /// Keys of the object that nobody has read.
  std::vector<std::string> unread() const;

 private:
  const Json& config_;
  std::set<std::string, std::less<>> read_;
  std::vector<std::string> mistakes_;
};

/// Arguments of Megatron's for a config.json of the family: a JSON object as checkpoints hold it, without tokenizer.
/// @param source  names the file in errors.
/// @throw NotSupported listing every key and value that changes the computation and is unsupported.
Json arguments_of(const Family& family, const Json& config, const std::string& source);

// Parts that families have in common.

/// rope_theta, rope_scaling and rope_parameters, with what the scaling types mean. Sets rotary arguments.
/// @param base  where rope_theta is missing
void derive_rope(ConfigReader& config, Json& arguments, double base = 10000);
/// The same for the part of the heads of latent attention that rotates.
void derive_latent_rope(ConfigReader& config, Json& arguments);
/// tie_word_embeddings. @param otherwise  where the key is missing.
void derive_tied_embeddings(ConfigReader& config, Json& arguments, bool otherwise);
/// layer_types, where it is given: which layers have the sliding window.
void read_layer_types(ConfigReader& config, std::vector<bool>& is_sliding);
/// A window over all layers. @param window  positions that a query sees, its own included; 0: all of them.
void set_sliding_window(Json& arguments, int64_t window);
/// A window over the layers that `is_sliding` marks alone.
void set_sliding_layers(Json& arguments, int64_t window, const std::vector<bool>& is_sliding);

}  // namespace megatron::hugging_face
