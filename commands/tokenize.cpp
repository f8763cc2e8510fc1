#include "commands/tokenize.h"

#include <charconv>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostream>
#include <span>

#include "commands/chat_lines.h"
#include "commands/exit_code.h"
#include "commands/terminal.h"
#include "commands/tokenizer_flags.h"
#include "megatron/base/command_help.h"
#include "megatron/base/field_needs.h"
#include "megatron/base/mistakes.h"
#include "megatron/base/word_list.h"
#include "megatron/tokenizers/document_source.h"
#include "megatron/tokenizers/json_string.h"
#include "megatron/training/config/flag_synonyms.h"

namespace megatron {
namespace {
using LineJson = nlohmann::json;

constexpr std::string_view kTokenizeIntroduction =
    R"(usage: megatron tokenize --tokenizer-type TYPE [--text TEXT | --input FILE...] [flags]

Prints the token ids of a text, or of each line of the input, one line for each. The tokenizer flags are
those of preprocess_data and pretrain_gpt.

  megatron tokenize --tokenizer-type HuggingFaceTokenizer --tokenizer-model tokenizer.json --text "Hello"
  megatron tokenize --tokenizer-type ByteLevelTokenizer --input corpus.jsonl --json
  echo 72 105 | megatron tokenize --tokenizer-type ByteLevelTokenizer --decode
  megatron tokenize --tokenizer-type HuggingFaceTokenizer --tokenizer-model llama3/ --chat --input chats.jsonl

)";
constexpr const char* kStandardInput = "/dev/stdin";

struct TokenizeConfig {
  std::vector<std::string> input;
  std::optional<std::string> text, input_format;
  std::string json_key = "text";
  bool decode = false, json = false, chat = false, add_generation_prompt = false;
  std::optional<std::string> chat_template;
  TokenizerOptions tokenizer;
};

FieldTable describe(TokenizeConfig& config) {
  FieldTable table;
  table.begin_group("Input and output", "");
  table.add("text", config.text, "one text, or with --decode its ids").may_be_empty();
  table.add("input", config.input, "files, whose lines are taken one by one; gzip and zstd are unpacked")
      .by_default("standard input");
  table.add("input_format", config.input_format, "text: a line is a text; jsonl: it is a JSON object")
      .by_default("jsonl for files named *.jsonl and *.jsonl.gz, else text")
      .one_of({"text", "jsonl"});
  table.add("json_key", config.json_key, "key of the text in a JSON object");
  table.add("decode", config.decode,
            "the other way: a line is ids with spaces between them, or a JSON object whose key ids has a list");
  table.add("json", config.json, R"(print {"ids": [...], "decoded": "..."} for each line)");
  table.begin_group("Conversations", "");
  table.add(
      "chat", config.chat,
      R"(a line is {"messages": [{"role": ..., "content": ...}, ...]}, which a chat template makes a text; no other )"
      "special tokens are put around it");
  table.add("chat_template", config.chat_template, "the template in Jinja, or its file")
      .by_default("that of the tokenizer's folder")
      .needs("--chat", [&config] { return config.chat; });
  table.add("add_generation_prompt", config.add_generation_prompt, "end with the start of the answer")
      .needs("--chat", [&config] { return config.chat; });
  describe_tokenizer_flags(table, config.tokenizer);
  return table;
}

void check(const TokenizeConfig& config, const GivenFields& given, Mistakes& mistakes) {
  if (config.tokenizer.type.empty())
    mistakes.add({"--tokenizer-type"}, "--tokenizer-type is missing: one of {}", joined(tokenizer_types(), ", "));
  if (config.text && !config.input.empty()) mistakes.add({"--text", "--input"}, "--text and --input: give one of them");
  if (config.text && config.input_format)
    mistakes.add({"--text", "--input-format"}, "--input-format is for --input; --text is the text itself");
  if (config.chat && config.decode) mistakes.add({"--chat", "--decode"}, "--chat and --decode: give one of them");
  if (given.contains("json_key") && config.decode)
    mistakes.add({"--json-key", "--decode"}, "--json-key: --decode reads the key ids");
}

std::vector<TokenId> ids_of_words(std::string_view text) {
  std::vector<TokenId> ids;
  for (size_t begin = 0; (begin = text.find_first_not_of(" \t\r", begin)) != std::string_view::npos;) {
    const size_t end = std::min(text.find_first_of(" \t\r", begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    TokenId id = 0;
    const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    require<DataError>(error == std::errc() && stop == word.data() + word.size(),
                       "'{}' is not a token id, which is an integer", word);
    ids.push_back(id);
    begin = end;
  }
  return ids;
}

/// The value of a key in a line of JSON.
LineJson json_value(std::string_view line, const std::string& key) {
  const LineJson json = LineJson::parse(line, nullptr, false);
  require<DataError>(json.is_object(), "the line is not a JSON object");
  require<DataError>(json.contains(key), "the object has no key '{}'", key);
  return json[key];
}

std::vector<TokenId> ids_of_json(std::string_view line) {
  std::vector<TokenId> ids;
  const LineJson value = json_value(line, "ids");
  require<DataError>(value.is_array(), "the value of 'ids' is not a list");
  for (const LineJson& id : value) {
    const bool fits = id.is_number_integer() && id >= std::numeric_limits<TokenId>::min() &&
                      id <= std::numeric_limits<TokenId>::max();
    require<DataError>(fits, "{} is not a token id, which is an integer", id.dump());
    ids.push_back(id.get<TokenId>());
  }
  return ids;
}

std::string text_of_json(std::string_view line, const std::string& key) {
  const LineJson value = json_value(line, key);
  require<DataError>(value.is_string(), "the value of '{}' is not a string", key);
  return value.get<std::string>();
}

/// Turns lines into lines.
class LineTokenizer {
 public:
  LineTokenizer(const TokenizeConfig& config, const Tokenizer& tokenizer, std::ostream& out)
      : config_(config), tokenizer_(tokenizer), encoder_(tokenizer.make_encoder()), out_(out) {
    if (config.chat)
      chat_.emplace(find_chat_template(config.tokenizer, config.chat_template), config.add_generation_prompt);
  }

  void take(std::string_view line, bool is_json) {
    if (config_.decode) {
      const std::vector<TokenId> ids = is_json ? ids_of_json(line) : ids_of_words(line);
      const std::string text = tokenizer_.decode(ids);
      return print(ids, text, text);
    }
    std::vector<TokenId> ids;
    if (chat_)
      encoder_->append(chat_->text_of(line), ids);
    else
      encoder_->append(is_json ? text_of_json(line, config_.json_key) : line, ids);
    print(ids, joined(ids, " "), config_.json ? tokenizer_.decode(ids) : "");
  }

 private:
  void print(std::span<const TokenId> ids, const std::string& plain, const std::string& decoded) {
    if (config_.json)
      out_ << "{\"ids\": [" << joined(ids, ", ") << "], \"decoded\": " << json_string(decoded) << "}\n";
    else
      out_ << plain << '\n';
  }

  const TokenizeConfig& config_;
  const Tokenizer& tokenizer_;
  std::unique_ptr<TextEncoder> encoder_;
  std::optional<ChatLines> chat_;
  std::ostream& out_;
};

void tokenize(const TokenizeConfig& config, std::ostream& out) {
  TokenizerOptions options = config.tokenizer;
  if (config.chat && tokenizer_reads(options.type, "--tokenizer-hf-no-include-special-tokens"))
    options.hf_no_include_special_tokens = true;  // the template has them
  const std::unique_ptr<Tokenizer> tokenizer = make_tokenizer(options);
  LineTokenizer lines(config, *tokenizer, out);
  if (config.text) return lines.take(*config.text, false);
  for (const std::string& file : config.input)
    require<DataError>(std::filesystem::exists(file), "--input {}: there is no such file", file);
  DocumentSource source({.files = config.input.empty() ? std::vector<std::string>{kStandardInput} : config.input});
  while (const std::optional<RawBatch> batch = source.next()) {
    const bool is_json = config.input_format ? *config.input_format == "jsonl"
                                             : batch->file.ends_with(".jsonl") || batch->file.ends_with(".jsonl.gz");
    for (const RawBatch::Document& document : batch->documents) {
      try {
        lines.take(batch->text_of(document), is_json);
      } catch (const DataError& error) {
        throw DataError(fmt::format("{}:{}: {}", batch->file, document.line, error.what()));
      }
    }
  }
}

}  // namespace

int tokenize_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err) {
  return run_command("tokenize", err, [&] {
    TokenizeConfig config;
    FieldTable table = describe(config);
    if (asks_for_help(args))
      return show_text(
          help_text(
              {.command = "megatron tokenize", .introduction = std::string(kTokenizeIntroduction), .table = table},
              args),
          out);
    Mistakes mistakes;
    RefusedFlags refused = refused_tokenizer_flags();
    refused.erase("--chat-template");
    const GivenFields given = parse_flags(table, args, {.refused = refused, .synonyms = flag_synonyms()}, mistakes);
    check(config, given, mistakes);
    check_needs(table, given, mistakes);
    mistakes.throw_if_any("the flags are wrong");
    for (const std::string& note : notes_without_effect(table, given)) err << "megatron tokenize: " << note << '\n';
    tokenize(config, out);
  });
}

}  // namespace megatron
