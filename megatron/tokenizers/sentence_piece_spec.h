// The settings of a SentencePiece model that its library does not give.
#pragma once

#include <string_view>
#include <vector>

namespace megatron {

/// Fields of ModelProto, with the defaults of sentencepiece_model.proto. Texts point into the model.
struct SentencePieceSpec {
  enum class ModelType { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };
  struct Piece {
    enum class Type { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };
    std::string_view text;
    float score = 0;
    Type type = Type::kNormal;
  };
  std::vector<Piece> pieces;
  ModelType model_type = ModelType::kUnigram;
  bool treat_whitespace_as_suffix = false;
  bool byte_fallback = false;
  std::string_view charsmap;  ///< rules that change a text before it is cut
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;

  /// @param model  a serialized ModelProto that the library has read. @throw DataError if it is cut off.
  static SentencePieceSpec of(std::string_view model);
};

}  // namespace megatron
