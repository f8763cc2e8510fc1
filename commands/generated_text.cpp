#include "commands/generated_text.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace megatron {
namespace {

/// The position before a trailing incomplete UTF-8 character.
size_t complete_length(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if (byte < 0x80) break;
    if (byte < 0xC0) continue;
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    return length > back ? text.size() - back : text.size();
  }
  return text.size();
}

}  // namespace

GeneratedText::GeneratedText(const Tokenizer& tokenizer, std::vector<TokenId> prompt, std::span<const std::string> stop)
    : tokenizer_(tokenizer), stop_(stop), ids_(std::move(prompt)), num_decoded_(tokenizer.decode(ids_).size()) {}

bool GeneratedText::add(TokenId id) {
  // A token's text may depend on the tokens before it, such as the space between two numbers.
  ids_.push_back(id);
  const std::string decoded = tokenizer_.decode(ids_);
  const size_t num_before = text_.size();
  if (decoded.size() > num_decoded_) text_ += decoded.substr(num_decoded_);
  num_decoded_ = decoded.size();
  size_t end = std::string::npos;
  for (const std::string& word : stop_)
    end = std::min(end, text_.find(word, num_before - std::min(num_before, word.size() - 1)));
  if (end == std::string::npos) return false;
  text_.erase(end);
  return true;
}

size_t GeneratedText::num_settled() const {
  size_t settled = complete_length(text_);
  for (const std::string& word : stop_)
    for (size_t length = std::min(word.size() - 1, text_.size()); length > 0; --length)
      if (text_.ends_with(std::string_view(word).substr(0, length))) {
        settled = std::min(settled, text_.size() - length);
        break;
      }
  return settled;
}

}  // namespace megatron
