// The unigram language model of SentencePiece.
#include <algorithm>
#include <limits>

#include "megatron/base/error.h"
#include "megatron/tokenizers/hugging_face/models.h"
#include "megatron/tokenizers/hugging_face/serde_number.h"
#include "megatron/tokenizers/utf8.h"

namespace megatron::hugging_face {
namespace {

constexpr double kUnknownPenalty = 10;  // below the score of the least likely piece

/// The pieces as a tree of bytes: finds all that start at a place of a text.
class PieceTree {
 public:
  void add(std::string_view piece, TokenId id) {
    uint64_t node = 0;
    for (const char c : piece) {
      const auto [edge, is_added] = edges_.emplace(edge_of(node, c), ids_.size());
      if (is_added) ids_.push_back(-1);
      node = edge->second;
    }
    ids_[node] = id;
  }

  /// Calls `f(length, id)` for the pieces that `text` starts with, the shortest first.
  template <class F>
  void for_each_prefix(std::string_view text, F&& f) const {
    uint64_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto edge = edges_.find(edge_of(node, text[i]));
      if (edge == edges_.end()) return;
      node = edge->second;
      if (ids_[node] >= 0) f(i + 1, ids_[node]);
    }
  }

 private:
  struct Hash {
    size_t operator()(uint64_t edge) const {
      edge *= 0x9E3779B97F4A7C15u;  // 2^64 / golden ratio: spreads all bits over the upper ones
      return edge ^ edge >> 32;
    }
  };
  static uint64_t edge_of(uint64_t node, char c) { return node << 8 | static_cast<unsigned char>(c); }
  std::unordered_map<uint64_t, uint64_t, Hash> edges_;
  std::vector<TokenId> ids_ = {-1};  // by node, -1: no piece ends there
};

/// Kudo 2018 (arXiv:1804.10959), section 3.2: the cut of the highest probability.
class UnigramModel final : public Model {
 public:
  explicit UnigramModel(JsonFields& fields);
  std::unique_ptr<WordEncoder> make_encoder() const override;

  const PieceTree& tree() const { return tree_; }
  double score(TokenId id) const { return scores_[static_cast<size_t>(id)]; }
  double unknown_score() const { return min_score_ - kUnknownPenalty; }
  TokenId unknown() const {
    require<DataError>(unknown_.has_value(), "the text has a character that the vocabulary has not, and no unk_id");
    return *unknown_;
  }
  bool is_unknown(TokenId id) const { return unknown_ == id; }
  /// Appends the ids of a part of the cut.
  void append_piece(std::string_view piece, std::vector<TokenId>& ids) const;

 private:
  PieceTree tree_;
  std::vector<double> scores_;
  double min_score_ = std::numeric_limits<double>::infinity();
  std::optional<TokenId> unknown_;
  bool byte_fallback_;
  std::vector<TokenId> byte_ids_;
};

class UnigramEncoder final : public WordEncoder {
 public:
  explicit UnigramEncoder(const UnigramModel& model) : model_(model) {}
  void append(std::string_view word, std::vector<TokenId>& ids) override;

 private:
  struct Node {  // the best cut that ends here
    double score = 0;
    size_t start = kNone;
    TokenId id = 0;
  };
  static constexpr size_t kNone = SIZE_MAX;
  void offer(size_t end, double score, size_t start, TokenId id) {
    Node& node = nodes_[end];
    if (node.start == kNone || score > node.score) node = {score, start, id};
  }

  const UnigramModel& model_;
  std::vector<Node> nodes_;
  std::vector<std::pair<size_t, size_t>> pieces_;
};

UnigramModel::UnigramModel(JsonFields& fields) {
  const std::string where = fields.where() + ".vocab";
  for (const auto& entry : fields.get_array("vocab")) {
    simdjson::dom::array pair;
    std::string_view piece;
    double score = 0;
    require<DataError>(!entry.get(pair) && pair.size() == 2 && !pair.at(0).get(piece) && !pair.at(1).get(score),
                       "{}: entry {} is not a piece and its score", where, scores_.size());
    const auto id = static_cast<TokenId>(scores_.size());
    score = serde_number(score);  // between equally likely cuts the last bit decides
    vocabulary_.add(piece, id, where);
    if (!piece.empty()) tree_.add(piece, id);
    scores_.push_back(score);
    min_score_ = std::min(min_score_, score);
  }
  if (fields.find("unk_id")) {
    unknown_ = token_id_of(fields.get("unk_id"), fields.where());
    require<DataError>(static_cast<size_t>(*unknown_) < scores_.size(), "{}: the unk_id {} is not in the vocabulary",
                       fields.where(), *unknown_);
  }
  byte_fallback_ = fields.get_bool_or("byte_fallback", false);
  if (byte_fallback_) byte_ids_ = byte_token_ids(vocabulary_);
}

void UnigramModel::append_piece(std::string_view piece, std::vector<TokenId>& ids) const {
  if (const auto id = vocabulary_.id_of(piece)) return ids.push_back(*id);
  const auto byte_id = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
  if (byte_fallback_ && std::ranges::all_of(piece, [&](char c) { return byte_id(c) >= 0; })) {
    for (const char c : piece) ids.push_back(byte_id(c));
    return;
  }
  ids.push_back(unknown());
}

void UnigramEncoder::append(std::string_view word, std::vector<TokenId>& ids) {
  nodes_.assign(word.size() + 1, {});
  for (size_t start = 0, length; start < word.size(); start += length) {
    length = utf8_length(word[start]);
    const double score = nodes_[start].score;
    bool has_character = false;
    model_.tree().for_each_prefix(word.substr(start), [&](size_t size, TokenId id) {
      offer(start + size, score + model_.score(id), start, id);
      has_character = has_character || size == length;
    });
    if (!has_character) offer(start + length, score + model_.unknown_score(), start, model_.unknown());
  }
  pieces_.clear();
  bool is_last_unknown = false;
  for (size_t end = word.size(); end > 0; end = nodes_[end].start) {
    const bool is_unknown = model_.is_unknown(nodes_[end].id);
    if (is_unknown && is_last_unknown)
      pieces_.back().first = nodes_[end].start;  // unknown neighbours are one piece
    else
      pieces_.emplace_back(nodes_[end].start, end);
    is_last_unknown = is_unknown;
  }
  for (size_t i = pieces_.size(); i-- > 0;)
    model_.append_piece(word.substr(pieces_[i].first, pieces_[i].second - pieces_[i].first), ids);
}

std::unique_ptr<WordEncoder> UnigramModel::make_encoder() const { return std::make_unique<UnigramEncoder>(*this); }

}  // namespace

std::unique_ptr<Model> make_unigram_model(JsonFields& fields) { return std::make_unique<UnigramModel>(fields); }

}  // namespace megatron::hugging_face
