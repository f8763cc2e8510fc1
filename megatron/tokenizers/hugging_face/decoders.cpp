#include "megatron/tokenizers/hugging_face/decoders.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"
#include "megatron/tokenizers/byte_alphabet.h"
#include "megatron/tokenizers/hugging_face/text_pattern.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::hugging_face {
namespace {
void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty()) return;
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

/// The spaces that English text has not in front of punctuation.
void clean_up(std::string& text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kRules = {{{" .", "."},
                                                                                     {" ?", "?"},
                                                                                     {" !", "!"},
                                                                                     {" ,", ","},
                                                                                     {" ' ", "'"},
                                                                                     {" n't", "n't"},
                                                                                     {" 'm", "'m"},
                                                                                     {" do not", " don't"},
                                                                                     {" 's", "'s"},
                                                                                     {" 've", "'ve"},
                                                                                     {" 're", "'re"}}};
  for (const auto& [from, to] : kRules) replace_all(text, from, to);
}

class ByteLevel final : public Decoder {
 public:
  void decode(std::vector<std::string>& tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens) bytes += bytes_of_alphabet(token).value_or(token);
    tokens = {replace_invalid_utf8(bytes)};
  }
};

class Metaspace final : public Decoder {
 public:
  explicit Metaspace(JsonFields& fields) : replacement_(fields.get_string("replacement")) {
    const auto scheme = fields.find_string("prepend_scheme");
    const bool add_prefix_space = fields.get_bool_or("add_prefix_space", true);
    drops_first_ = scheme.value_or("always") != "never" && add_prefix_space;
    fields.skip("split");
    fields.skip("str_rep");
    require<NotSupported>(!scheme || *scheme == "first" || *scheme == "never" || *scheme == "always",
                          "{}: the prepend_scheme '{}' is unknown", fields.where(), scheme.value_or(""));
  }
  void decode(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], replacement_, i == 0 && drops_first_ ? "" : " ");
  }

 private:
  std::string replacement_;
  bool drops_first_;
};

class ByteFallback final : public Decoder {
 public:
  void decode(std::vector<std::string>& tokens) const override {
    std::vector<std::string> result;
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (find_invalid_utf8(bytes))
        result.insert(result.end(), bytes.size(), "\uFFFD");  // one for each byte
      else
        result.push_back(bytes);
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const auto byte = byte_of(token)) {
        bytes.push_back(*byte);
        continue;
      }
      flush();
      result.push_back(std::move(token));
    }
    flush();
    tokens = std::move(result);
  }

 private:
  static std::optional<char> byte_of(std::string_view token) {
    if (token.size() != 6 || !token.starts_with("<0x") || !token.ends_with('>')) return std::nullopt;
    unsigned value = 0;
    const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
    if (error != std::errc() || end != token.data() + 5) return std::nullopt;
    return static_cast<char>(value);
  }
};

class Fuse final : public Decoder {
 public:
  void decode(std::vector<std::string>& tokens) const override { tokens = {joined(tokens, "")}; }
};

class Strip final : public Decoder {
 public:
  explicit Strip(JsonFields& fields)
      : content_(fields.get_string("content")), start_(fields.get_integer("start")), stop_(fields.get_integer("stop")) {
    require<DataError>(count_code_points(content_) == 1, "{}: 'content' is not one character", fields.where());
  }
  void decode(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      for (int64_t i = 0; i < start_ && token.starts_with(content_); ++i) token.erase(0, content_.size());
      for (int64_t i = 0; i < stop_ && token.ends_with(content_); ++i) token.resize(token.size() - content_.size());
    }
  }

 private:
  std::string content_;
  int64_t start_, stop_;
};

class Replace final : public Decoder {
 public:
  explicit Replace(JsonFields& fields)
      : pattern_(fields.get("pattern"), fields.where() + ".pattern"), content_(fields.get_string("content")) {}
  void decode(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) token = pattern_.replaced(token, content_);
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

class WordPiece final : public Decoder {
 public:
  explicit WordPiece(JsonFields& fields)
      : prefix_(fields.get_string("prefix")), cleans_up_(fields.get_bool("cleanup")) {}
  void decode(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0) {
        if (tokens[i].starts_with(prefix_))
          tokens[i].erase(0, prefix_.size());
        else
          tokens[i].insert(0, " ");
      }
      if (cleans_up_) clean_up(tokens[i]);
    }
  }

 private:
  std::string prefix_;
  bool cleans_up_;
};

class BpeDecoder final : public Decoder {
 public:
  explicit BpeDecoder(JsonFields& fields) : suffix_(fields.get_string("suffix")) {}
  void decode(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) replace_all(tokens[i], suffix_, i + 1 == tokens.size() ? "" : " ");
  }

 private:
  std::string suffix_;
};

class Ctc final : public Decoder {
 public:
  explicit Ctc(JsonFields& fields)
      : pad_(fields.get_string("pad_token")),
        delimiter_(fields.get_string("word_delimiter_token")),
        cleans_up_(fields.get_bool("cleanup")) {}
  void decode(std::vector<std::string>& tokens) const override {
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    for (std::string& token : tokens) {
      replace_all(token, pad_, "");
      if (!cleans_up_) continue;
      clean_up(token);
      replace_all(token, delimiter_, " ");
    }
    std::erase(tokens, "");
  }

 private:
  std::string pad_, delimiter_;
  bool cleans_up_;
};

class Sequence final : public Decoder {
 public:
  explicit Sequence(JsonFields& fields) {
    for (const auto& json : fields.get_array("decoders"))
      steps_.push_back(make_decoder(json, fmt::format("{}[{}]", fields.where(), steps_.size())));
  }
  void decode(std::vector<std::string>& tokens) const override {
    for (const auto& step : steps_) step->decode(tokens);
  }

 private:
  std::vector<std::unique_ptr<Decoder>> steps_;
};

std::unique_ptr<Decoder> make_by_type(const std::string& type, JsonFields& fields) {
  if (type == "ByteLevel") {
    for (const char* name : {"add_prefix_space", "trim_offsets", "use_regex"}) fields.skip(name);  // of encoding
    return std::make_unique<ByteLevel>();
  }
  if (type == "Metaspace") return std::make_unique<Metaspace>(fields);
  if (type == "ByteFallback") return std::make_unique<ByteFallback>();
  if (type == "Fuse") return std::make_unique<Fuse>();
  if (type == "Strip") return std::make_unique<Strip>(fields);
  if (type == "Replace") return std::make_unique<Replace>(fields);
  if (type == "WordPiece") return std::make_unique<WordPiece>(fields);
  if (type == "BPEDecoder") return std::make_unique<BpeDecoder>(fields);
  if (type == "CTC") return std::make_unique<Ctc>(fields);
  if (type == "Sequence") return std::make_unique<Sequence>(fields);
  throw NotSupported(fmt::format("{}: the decoder type '{}' is unknown", fields.where(), type));
}
}  // namespace

std::unique_ptr<Decoder> make_decoder(simdjson::dom::element json, const std::string& where) {
  JsonFields fields(json, where);
  std::unique_ptr<Decoder> decoder = make_by_type(fields.get_string("type"), fields);
  fields.require_all_read();
  return decoder;
}

}  // namespace megatron::hugging_face
