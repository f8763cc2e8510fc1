#include "megatron/tokenizers/sentence_piece_unigram.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron {
namespace {
using Piece = SentencePieceSpec::Piece;

constexpr std::string_view kSpace = "\u2581";  // stands for a space in pieces
constexpr float kUnknownPenalty = 10;          // below the score of the least likely piece

std::vector<ByteTrie::Entry> encodable(const std::vector<Piece>& pieces) {
  std::vector<ByteTrie::Entry> entries;
  for (size_t id = 0; id < pieces.size(); ++id)
    if (pieces[id].type == Piece::Type::kNormal) entries.emplace_back(pieces[id].text, static_cast<TokenId>(id));
  return entries;
}

/// The reverse of Python's f"<0x{byte:02X}>".
std::string byte_piece(int byte) { return fmt::format("<0x{:02X}>", byte); }
}  // namespace

bool SentencePieceUnigram::supports(const SentencePieceSpec& spec) {
  const bool has_own_symbols = std::ranges::count(spec.pieces, Piece::Type::kUserDefined, &Piece::type) > 0;
  return spec.model_type == SentencePieceSpec::ModelType::kUnigram && !has_own_symbols && spec.escape_whitespaces;
}

SentencePieceUnigram::SentencePieceUnigram(const SentencePieceSpec& spec)
    : charsmap_(hugging_face::PrecompiledCharsmap::from_bytes(std::string(spec.charsmap), "the SentencePiece model")),
      adds_prefix_(spec.add_dummy_prefix && !spec.treat_whitespace_as_suffix),
      adds_suffix_(spec.add_dummy_prefix && spec.treat_whitespace_as_suffix),
      removes_spaces_(spec.remove_extra_whitespaces),
      byte_fallback_(spec.byte_fallback),
      trie_(encodable(spec.pieces)) {
  float least = std::numeric_limits<float>::max();
  for (size_t id = 0; id < spec.pieces.size(); ++id) {
    const Piece& piece = spec.pieces[id];
    scores_.push_back(piece.score);
    if (piece.type == Piece::Type::kNormal) least = std::min(least, piece.score);
    if (piece.type == Piece::Type::kUnknown) unknown_ = static_cast<TokenId>(id);
  }
  unknown_score_ = least - kUnknownPenalty;
  for (int byte = 0; byte_fallback_ && byte < 256; ++byte) {
    const auto place = std::ranges::find(spec.pieces, byte_piece(byte), &Piece::text);
    byte_ids_[static_cast<size_t>(byte)] =
        place == spec.pieces.end() ? unknown_ : static_cast<TokenId>(place - spec.pieces.begin());
  }
  for (size_t c = 1; c < is_plain_.size(); ++c) {
    is_plain_[c] = c != ' ';
    for (size_t next = 0; next < is_plain_.size(); ++next) {
      const std::array<char, 2> both = {static_cast<char>(c), static_cast<char>(next)};
      is_plain_[c] = is_plain_[c] && !charsmap_.may_start({both.data(), both.size()});
    }
  }
}

SentencePieceUnigram::Prefix SentencePieceUnigram::normalized_prefix(std::string_view text) const {
  if (const auto rule = charsmap_.longest_rule(text)) return {rule->second, rule->first};
  const size_t length = utf8_length(text[0]);
  return {text.substr(0, length), length};
}

void SentencePieceUnigram::normalize(std::string_view text, std::string& normalized) const {
  normalized.clear();
  while (removes_spaces_ && !text.empty()) {
    const Prefix prefix = normalized_prefix(text);
    if (prefix.replacement != " ") break;
    text.remove_prefix(prefix.length);
  }
  if (text.empty()) return;
  if (adds_prefix_) normalized += kSpace;
  bool follows_space = removes_spaces_;
  const auto code_at = [&](size_t i) { return static_cast<size_t>(static_cast<unsigned char>(text[i])); };
  const auto stays = [&](size_t i) {
    return i + 1 < text.size() && std::max(code_at(i), code_at(i + 1)) < is_plain_.size() && is_plain_[code_at(i)];
  };
  for (size_t i = 0; i < text.size();) {
    size_t end = i;  // of characters that stay as they are
    while (stays(end)) ++end;
    if (end > i) {
      normalized += text.substr(i, end - i);
      follows_space = false;
      i = end;
      continue;
    }
    auto [replacement, length] = normalized_prefix(text.substr(i));
    i += length;
    while (follows_space && replacement.starts_with(' ')) replacement.remove_prefix(1);
    for (const char c : replacement) c == ' ' ? normalized += kSpace : normalized += c;
    if (!replacement.empty()) follows_space = removes_spaces_ && replacement.ends_with(' ');
  }
  while (removes_spaces_ && normalized.ends_with(kSpace)) normalized.resize(normalized.size() - kSpace.size());
  if (adds_suffix_) normalized += kSpace;
}

/// Sums are rounded to single precision before they are compared: of equal ones the longer last piece wins.
void SentencePieceUnigram::find_cuts(std::string_view normalized, std::vector<Scratch::Cut>& cuts) const {
  require<DataError>(std::in_range<int32_t>(normalized.size()), "a text of {} bytes is longer than a document may be",
                     normalized.size());
  cuts.assign(normalized.size() + 1, {0, kNone, 0});
  for (size_t begin = 0, length; begin < normalized.size(); begin += length) {
    length = std::min(utf8_length(normalized[begin]), normalized.size() - begin);  // a damaged rule may cut one off
    const float score = cuts[begin].score;
    bool has_character = false;
    const auto offer = [&](size_t end, float sum, TokenId id) {
      Scratch::Cut& cut = cuts[end];
      if (cut.begin == kNone || sum > cut.score) cut = {sum, static_cast<int32_t>(begin), id};
    };
    trie_.for_each_prefix(normalized.substr(begin), [&](size_t size, TokenId id) {
      offer(begin + size, scores_[static_cast<size_t>(id)] + score, id);
      has_character = has_character || size == length;
    });
    if (!has_character) offer(begin + length, unknown_score_ + score, unknown_);
  }
}

void SentencePieceUnigram::append(std::string_view text, Scratch& scratch, std::vector<TokenId>& ids) const {
  normalize(text, scratch.normalized);
  const std::string_view normalized = scratch.normalized;
  find_cuts(normalized, scratch.cuts);
  const size_t first = ids.size();
  bool is_last_unknown = false;
  for (size_t end = normalized.size(); end > 0;) {  // backwards, as the cuts are linked
    const Scratch::Cut& cut = scratch.cuts[end];
    const auto begin = static_cast<size_t>(cut.begin);
    const bool is_unknown = cut.id == unknown_;
    if (is_unknown && byte_fallback_) {
      for (size_t i = end; i-- > begin;) ids.push_back(byte_ids_[static_cast<unsigned char>(normalized[i])]);
    } else if (!is_unknown || !is_last_unknown) {  // unknown neighbours are one piece
      ids.push_back(cut.id);
    }
    is_last_unknown = is_unknown;
    end = begin;
  }
  std::reverse(ids.begin() + static_cast<std::ptrdiff_t>(first), ids.end());
}

}  // namespace megatron
