// The settings of a SentencePiece model that its library does not give.
#pragma once

#include <string_view>

namespace megatron {

/// Fields of ModelProto's trainer_spec and normalizer_spec, with the defaults of sentencepiece_model.proto.
struct SentencePieceSpec {
  enum class ModelType { kUnigram = 1, kBpe = 2, kWord = 3, kChar = 4 };
  ModelType model_type = ModelType::kUnigram;
  bool treat_whitespace_as_suffix = false;
  bool has_charsmap = false;  ///< text is changed before it is cut
  bool add_dummy_prefix = true;
  bool remove_extra_whitespaces = true;
  bool escape_whitespaces = true;

  /// @param model  a serialized ModelProto that the library has read. @throw DataError if it is cut off.
  static SentencePieceSpec of(std::string_view model);
};

}  // namespace megatron
