#include "megatron/datasets/fill_in_the_middle.h"

#include <algorithm>
#include <array>
#include <functional>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {

void append(std::span<const TokenId> ids, std::vector<int64_t>& out) { out.insert(out.end(), ids.begin(), ids.end()); }

std::vector<TokenId> ids_of(std::string_view text, TextEncoder& encoder) {
  std::vector<TokenId> ids;
  encoder.append(text, ids);
  return ids;
}

/// Calls `use` for each part that is not empty and ends with `separator`, and appends the separator behind it; then for
/// the rest, which may be empty. A separator behind nothing is dropped.
void for_each_part(std::span<const int64_t> tokens, int64_t separator, std::vector<int64_t>& out,
                   const std::function<void(std::span<const int64_t>)>& use) {
  size_t begin = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] != separator) continue;
    if (i > begin) {
      use(tokens.subspan(begin, i - begin));
      out.push_back(separator);
    }
    begin = i + 1;
  }
  use(tokens.subspan(begin));
}

}  // namespace

FillInTheMiddle::FillInTheMiddle(const Tokenizer& tokenizer, Options options)
    : tokenizer_(tokenizer), options_(std::move(options)) {
  const Options& o = options_;
  for (const auto& [name, rate] : {std::pair("--fim-rate", o.rate), std::pair("--fim-spm-rate", o.spm_rate),
                                   std::pair("--fim-fragment-rate", o.fragment_rate)})
    require<ConfigError>(rate > 0 && rate <= 1, "{} is {}; give a number above 0 and at most 1", name, rate);
  for (const TokenId id : {o.prefix, o.middle, o.suffix, o.pad, o.eod, o.split_sample.value_or(o.eod)})
    require<ConfigError>(id >= 0 && id < tokenizer.vocab_size(),
                         "fill in the middle: token {} is not in the vocabulary of {} tokens. Add the tokens to the "
                         "tokenizer, or name others",
                         id, tokenizer.vocab_size());
}

void FillInTheMiddle::apply(std::vector<int64_t>& sample, NumpyRandomState& random) const {
  Tokens changed;
  changed.reserve(sample.size() + sample.size() / 8);
  const std::unique_ptr<TextEncoder> encoder = tokenizer_.make_encoder();
  const Source source{random, *encoder};
  if (std::ranges::find(sample, options_.eod) == sample.end())
    permute_document(sample, source, changed);
  else
    for_each_part(sample, options_.eod, changed,
                  [&](std::span<const int64_t> document) { permute_document(document, source, changed); });
  changed.resize(sample.size(), options_.pad);
  sample = std::move(changed);
}

void FillInTheMiddle::permute_document(std::span<const int64_t> document, const Source& source, Tokens& out) const {
  const bool has_fragments =
      options_.split_sample && std::ranges::find(document, *options_.split_sample) != document.end();
  if (!has_fragments) return permute(document, options_.rate, source, out);
  if (!source.random.bernoulli(options_.rate)) {
    out.insert(out.end(), document.begin(), document.end());
    return;
  }
  for_each_part(document, *options_.split_sample, out,
                [&](std::span<const int64_t> fragment) { permute(fragment, options_.fragment_rate, source, out); });
}

void FillInTheMiddle::permute(std::span<const int64_t> tokens, double rate, const Source& source, Tokens& out) const {
  const auto keep = [&] { out.insert(out.end(), tokens.begin(), tokens.end()); };
  NumpyRandomState& random = source.random;
  if (!random.bernoulli(rate)) return keep();
  const std::string text = text_of(tokens);
  if (options_.no_prefix && text.starts_with(*options_.no_prefix)) return keep();
  const size_t num_characters = count_code_points(text);
  std::array<size_t, 2> cuts{};
  for (size_t& cut : cuts) cut = random.interval(num_characters);
  std::ranges::sort(cuts);
  for (size_t& cut : cuts) cut = offset_of_code_point(text, cut);
  const std::string_view whole = text;
  const std::vector<TokenId> prefix = ids_of(whole.substr(0, cuts[0]), source.encoder);
  const std::vector<TokenId> middle = ids_of(whole.substr(cuts[0], cuts[1] - cuts[0]), source.encoder);
  const std::vector<TokenId> suffix = ids_of(whole.substr(cuts[1]), source.encoder);
  const bool is_spm = random.bernoulli(options_.spm_rate);
  out.push_back(options_.prefix);
  if (!is_spm) append(prefix, out);
  out.push_back(options_.suffix);
  append(suffix, out);
  out.push_back(options_.middle);
  if (is_spm) append(prefix, out);
  append(middle, out);
}

std::string FillInTheMiddle::text_of(std::span<const int64_t> tokens) const {
  std::vector<TokenId> ids;
  for (const int64_t token : tokens)
    if (std::ranges::find(options_.special_tokens, token) == options_.special_tokens.end()) {
      require<DataError>(std::in_range<TokenId>(token), "token {} is not in the vocabulary", token);
      ids.push_back(static_cast<TokenId>(token));
    }
  return replace_invalid_utf8(tokenizer_.decode(ids));  // a sample may begin and end inside of a character
}

}  // namespace megatron
