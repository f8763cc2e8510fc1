#include "megatron/datasets/masked_dataset_builder.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <vector>

#include "megatron/base/error.h"

namespace megatron {
namespace {
int64_t required_id(const Tokenizer& tokenizer, std::string_view token) {
  const std::optional<TokenId> id = tokenizer.id_of(token);
  require<ConfigError>(id.has_value(), "the vocabulary has no token {}, which masked data sets need", token);
  return *id;
}
}  // namespace

WordPieceVocabulary word_piece_vocabulary_of(const Tokenizer& tokenizer) {
  const std::vector<TokenizerFile> files = tokenizer.files();
  const auto file = std::ranges::find(files, "vocab.txt", &TokenizerFile::name);
  require<ConfigError>(file != files.end(),
                       "masked data sets need pieces of words: a tokenizer of type BertWordPieceLowerCase or "
                       "BertWordPieceCase with --vocab-file vocab.txt");
  WordPieceVocabulary vocabulary;
  vocabulary.cls = required_id(tokenizer, "[CLS]");
  vocabulary.sep = required_id(tokenizer, "[SEP]");
  vocabulary.mask = required_id(tokenizer, "[MASK]");
  vocabulary.pad = required_id(tokenizer, "[PAD]");
  vocabulary.bos = vocabulary.cls, vocabulary.eos = vocabulary.sep;  // as transformers fills the roles of BERT
  const std::string_view content = file->content;
  for (size_t begin = 0; begin < content.size(); begin = std::min(content.find('\n', begin), content.size()) + 1)
    vocabulary.continues_word.push_back(content.substr(begin).starts_with("##"));
  vocabulary.continues_word.resize(static_cast<size_t>(tokenizer.vocab_size()), false);
  while (const auto id = tokenizer.id_of(fmt::format("<extra_id_{}>", vocabulary.sentinels.size())))
    vocabulary.sentinels.push_back(*id);
  return vocabulary;
}

}  // namespace megatron
