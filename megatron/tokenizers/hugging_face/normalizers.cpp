#include "megatron/tokenizers/hugging_face/normalizers.h"

#include <array>
#include <optional>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/tokenizers/byte_alphabet.h"
#include "megatron/tokenizers/hugging_face/crate_characters.h"
#include "megatron/tokenizers/hugging_face/precompiled_charsmap.h"
#include "megatron/tokenizers/hugging_face/text_pattern.h"
#include "megatron/tokenizers/unicode.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::hugging_face {
namespace {
/// Keeps the characters that `keep` accepts.
template <class Keep>
void filter(NormalizedText& text, Keep&& keep) {
  std::string kept;
  for (size_t offset = 0; offset < text.text.size();) {
    const size_t length = utf8_length(text.text[offset]);
    if (keep(code_point_at(text.text, offset)))
      kept.append(text.text, offset, length);
    else if (kept.empty())
      text.starts_document = false;
    offset += length;
  }
  text.text = std::move(kept);
}

/// Calls `append(code_point, result)` for each character and takes the result for the text.
template <class Append>
void map(std::string& text, Append&& append) {
  std::string result;
  result.reserve(text.size());
  for (size_t offset = 0; offset < text.size(); offset += utf8_length(text[offset]))
    append(code_point_at(text, offset), result);
  text = std::move(result);
}

class FormNormalizer final : public Normalizer {
 public:
  explicit FormNormalizer(NormalForm form) : form_(form) {}
  void normalize(NormalizedText& text) const override { text.text = in_form(text.text, form_); }

 private:
  NormalForm form_;
};

class Lowercase final : public Normalizer {
 public:
  void normalize(NormalizedText& text) const override { map(text.text, append_lower); }
};

class Strip final : public Normalizer {
 public:
  explicit Strip(JsonFields& fields) : left_(fields.get_bool("strip_left")), right_(fields.get_bool("strip_right")) {}
  void normalize(NormalizedText& text) const override {
    size_t begin = 0, end = text.text.size();
    if (left_)
      while (begin < end && is_white_space(code_point_at(text.text, begin))) begin += utf8_length(text.text[begin]);
    while (right_ && end > begin) {
      size_t last = end - 1;
      while ((static_cast<unsigned char>(text.text[last]) & 0xC0) == 0x80) --last;
      if (!is_white_space(code_point_at(text.text, last))) break;
      end = last;
    }
    text.starts_document = text.starts_document && begin == 0;
    text.text = text.text.substr(begin, end - begin);
  }

 private:
  bool left_, right_;
};

class StripAccents final : public Normalizer {
 public:
  void normalize(NormalizedText& text) const override {
    filter(text, [](char32_t c) { return !is_mark(c); });
  }
};

class Replace final : public Normalizer {
 public:
  Replace(JsonFields& fields, const std::string& where)
      : pattern_(fields.get("pattern"), where + ".pattern"), content_(fields.get_string("content")) {}
  void normalize(NormalizedText& text) const override {
    std::string replaced = pattern_.replaced(text.text, content_);
    if (content_.empty() && !replaced.empty() && replaced[0] != text.text[0]) text.starts_document = false;
    text.text = std::move(replaced);
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(JsonFields& fields) : prefix_(fields.get_string("prepend")) {}
  void normalize(NormalizedText& text) const override {
    if (!text.text.empty()) text.text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class Precompiled final : public Normalizer {
 public:
  Precompiled(JsonFields& fields, const std::string& where)
      : charsmap_(PrecompiledCharsmap::from_base64(fields.get_string("precompiled_charsmap"), where)) {}
  void normalize(NormalizedText& text) const override { text.text = charsmap_.normalized(text.text); }

 private:
  PrecompiledCharsmap charsmap_;
};

class ByteLevel final : public Normalizer {
 public:
  void normalize(NormalizedText& text) const override {
    std::string mapped;
    for (const char c : text.text) mapped += alphabet_[static_cast<unsigned char>(c)];
    text.text = std::move(mapped);
  }

 private:
  std::array<std::string, 256> alphabet_ = byte_alphabet();
};

/// Source: SentencePiece's rules nmt_nfkc, before NFKC.
class Nmt final : public Normalizer {
 public:
  void normalize(NormalizedText& text) const override {
    filter(text, [](char32_t c) {
      return !((c >= 1 && c <= 8) || c == 0xB || (c >= 0xE && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F);
    });
    map(text.text, [](char32_t c, std::string& result) { append_utf8(becomes_space(c) ? U' ' : c, result); });
  }

 private:
  static bool becomes_space(char32_t c) {
    switch (c) {
      case 0x9:
      case 0xA:
      case 0xC:
      case 0xD:
      case 0x1680:
      case 0x2028:
      case 0x2029:
      case 0x2581:
      case 0xFEFF:
      case 0xFFFD:
        return true;
      default:
        return c >= 0x200B && c <= 0x200F;
    }
  }
};

/// Source: Devlin et al. 2018 (BERT), tokenization.py: BasicTokenizer.
class BertNormalizer final : public Normalizer {
 public:
  explicit BertNormalizer(JsonFields& fields)
      : clean_text_(fields.get_bool_or("clean_text", true)),
        handle_chinese_chars_(fields.get_bool_or("handle_chinese_chars", true)),
        lowercase_(fields.get_bool_or("lowercase", true)),
        strip_accents_(fields.get_bool_or("strip_accents", lowercase_)) {}

  void normalize(NormalizedText& text) const override {
    if (clean_text_) clean(text);
    if (handle_chinese_chars_) separate_chinese(text.text);
    if (strip_accents_) {
      text.text = in_form(text.text, NormalForm::kNfd);
      filter(text, [](char32_t c) { return !is_nonspacing_mark(c); });
    }
    if (lowercase_) map(text.text, append_lower);
  }

 private:
  static void clean(NormalizedText& text) {
    filter(text, [](char32_t c) {
      const bool is_space = c == '\t' || c == '\n' || c == '\r';
      return c != 0 && c != 0xFFFD && (is_space || !is_control_or_format(c));
    });
    map(text.text, [](char32_t c, std::string& result) { append_utf8(is_white_space(c) ? U' ' : c, result); });
  }

  static bool is_chinese(char32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B73F) || (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
           (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
  }

  static void separate_chinese(std::string& text) {
    map(text, [](char32_t c, std::string& result) {
      if (is_chinese(c)) result += ' ';
      append_utf8(c, result);
      if (is_chinese(c)) result += ' ';
    });
  }

  bool clean_text_, handle_chinese_chars_, lowercase_, strip_accents_;
};

class Sequence final : public Normalizer {
 public:
  Sequence(JsonFields& fields, const std::string& where) {
    for (const auto& json : fields.get_array("normalizers"))
      steps_.push_back(make_normalizer(json, fmt::format("{}[{}]", where, steps_.size())));
  }
  void normalize(NormalizedText& text) const override {
    for (const auto& step : steps_) step->normalize(text);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

std::unique_ptr<Normalizer> make_by_type(const std::string& type, JsonFields& fields, const std::string& where) {
  if (type == "NFC") return std::make_unique<FormNormalizer>(NormalForm::kNfc);
  if (type == "NFD") return std::make_unique<FormNormalizer>(NormalForm::kNfd);
  if (type == "NFKC") return std::make_unique<FormNormalizer>(NormalForm::kNfkc);
  if (type == "NFKD") return std::make_unique<FormNormalizer>(NormalForm::kNfkd);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "Strip") return std::make_unique<Strip>(fields);
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Replace") return std::make_unique<Replace>(fields, where);
  if (type == "Prepend") return std::make_unique<Prepend>(fields);
  if (type == "Precompiled") return std::make_unique<Precompiled>(fields, where);
  if (type == "ByteLevel") return std::make_unique<ByteLevel>();
  if (type == "Nmt") return std::make_unique<Nmt>();
  if (type == "BertNormalizer") return std::make_unique<BertNormalizer>(fields);
  if (type == "Sequence") return std::make_unique<Sequence>(fields, where);
  throw NotSupported(fmt::format("{}: the normalizer type '{}' is unknown", where, type));
}
}  // namespace

std::unique_ptr<Normalizer> make_normalizer(simdjson::dom::element json, const std::string& where) {
  JsonFields fields(json, where);
  std::unique_ptr<Normalizer> normalizer = make_by_type(fields.get_string("type"), fields, where);
  fields.require_all_read();
  return normalizer;
}

}  // namespace megatron::hugging_face
