#include "megatron/tokenizers/tiktoken_encoding.h"

#include <algorithm>
#include <functional>

#include "megatron/tokenizers/utf8.h"
#include "megatron/tokenizers/word_cache.h"

namespace megatron {
namespace {
/// Joins the bytes of a piece. Tokens are parts of the piece, so that a list of their starts is enough.
class RankMerger {
 public:
  explicit RankMerger(const TiktokenEncoding& encoding) : encoding_(encoding) {}

  /// Calls `f(token)` for the tokens of a piece, in order.
  template <class F>
  void merge(std::string_view piece, F&& f) {
    piece_ = piece;
    nodes_.clear();
    heap_.clear();
    for (uint32_t i = 0; i < piece.size(); ++i) nodes_.push_back({i + 1, i - 1});  // i - 1 of 0 is kNone
    for (uint32_t i = 0; i < piece.size(); ++i) propose(i);
    while (!heap_.empty()) {
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      const Candidate best = heap_.back();
      heap_.pop_back();
      if (is_current(best)) join(best.begin);
    }
    for (uint32_t begin = 0; begin < piece.size(); begin = nodes_[begin].end)
      f(piece.substr(begin, nodes_[begin].end - begin));
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Node {  // by the offset where a token starts; end 0: it was joined to the one before
    uint32_t end, previous;
  };
  struct Candidate {
    TokenId rank;
    uint32_t begin, end;  // of the token that the join would make
    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : begin > other.begin;
    }
  };

  void propose(uint32_t begin) {
    const uint32_t middle = nodes_[begin].end;
    if (middle >= piece_.size()) return;
    const uint32_t end = nodes_[middle].end;
    const TokenId* rank = encoding_.rank_of(piece_.substr(begin, end - begin));
    if (rank == nullptr) return;
    heap_.push_back({*rank, begin, end});
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  bool is_current(const Candidate& candidate) const {
    const uint32_t middle = nodes_[candidate.begin].end;
    return middle != 0 && middle < piece_.size() && nodes_[middle].end == candidate.end;
  }

  void join(uint32_t begin) {
    const uint32_t middle = nodes_[begin].end, end = nodes_[middle].end;
    nodes_[begin].end = end;
    nodes_[middle].end = 0;
    if (end < piece_.size()) nodes_[end].previous = begin;
    propose(begin);
    if (nodes_[begin].previous != kNone) propose(nodes_[begin].previous);
  }

  const TiktokenEncoding& encoding_;
  std::string_view piece_;
  std::vector<Node> nodes_;
  std::vector<Candidate> heap_;
};
}  // namespace

class TiktokenEncoder final : public TextEncoder {
 public:
  explicit TiktokenEncoder(const TiktokenEncoding& encoding)
      : encoding_(encoding), splitter_(encoding.pattern_), merger_(encoding) {}

  void append(std::string_view text, std::vector<TokenId>& ids) override {
    require_utf8(text);
    ids_.clear();
    const char* const end = text.data() + text.size();
    encoding_.special_tokens_.for_each_part(
        text,
        [&](std::string_view part) {
          splitter_.for_each_batch(part, [&](std::string_view pieces, std::span<const size_t> bounds) {
            cache_.append_words(pieces, bounds, static_cast<size_t>(end - pieces.data()), ids_,
                                [this](std::string_view piece) { append_new(piece); });
          });
        },
        [&](TokenId id) { ids_.push_back(id); });
    ids.insert(ids.end(), ids_.ids().begin(), ids_.ids().end());
  }

 private:
  void append_new(std::string_view piece) {
    piece_ids_.clear();
    const auto add = [&](std::string_view token) {
      piece_ids_.push_back(encoding_.first_id_ + *encoding_.rank_of(token));
    };
    if (encoding_.rank_of(piece) != nullptr)
      add(piece);
    else
      merger_.merge(piece, add);
    cache_.insert(piece, piece_ids_);
    ids_.append(piece_ids_);
  }

  const TiktokenEncoding& encoding_;
  RegexSplitter splitter_;
  RankMerger merger_;
  WordCache cache_;
  IdBuffer ids_;
  std::vector<TokenId> piece_ids_;
};

TiktokenEncoding::TiktokenEncoding(const Options& options) : pattern_(options.pattern), first_id_(options.first_id) {
  for (const std::string& token : options.tokens) {
    const auto rank = static_cast<TokenId>(ranks_.size());
    ranks_.emplace(token, rank);
    bytes_.emplace(first_id_ + rank, token);
  }
  for (const auto& [text, id] : options.special_tokens) {
    special_tokens_.add(text, id);
    bytes_[id] = text;
  }
}

std::unique_ptr<TextEncoder> TiktokenEncoding::make_encoder() const { return std::make_unique<TiktokenEncoder>(*this); }

const std::string* TiktokenEncoding::bytes_of(TokenId id) const {
  const auto place = bytes_.find(id);
  return place == bytes_.end() ? nullptr : &place->second;
}

const TokenId* TiktokenEncoding::rank_of(std::string_view bytes) const {
  const auto place = ranks_.find(bytes);
  return place == ranks_.end() ? nullptr : &place->second;
}

}  // namespace megatron
