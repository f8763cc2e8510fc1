#include "commands/prompts.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "megatron/base/error.h"
#include "megatron/inference/generator.h"
#include "megatron/tokenizers/document_source.h"

namespace megatron {
namespace {

/// Calls `f` and puts the line of the prompt before the text of a DataError.
template <class F>
auto with_line(const GenerateConfig& config, int64_t line, F&& f) {
  try {
    return f();
  } catch (const DataError& error) {
    if (line == 0) throw;
    throw DataError(fmt::format("{}:{}: {}", *config.prompts_file, line, error.what()));
  }
}

std::string prompt_of_json(std::string_view line) {
  const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
  require<DataError>(json.is_object(), R"(the line is not a JSON object {{"prompt": "..."}})");
  require<DataError>(json.contains("prompt") && json["prompt"].is_string(),
                     "the object has no text under the key 'prompt'");
  return json["prompt"].get<std::string>();
}

}  // namespace

std::vector<Prompt> read_prompts(const GenerateConfig& config) {
  if (config.prompt) return {{.text = *config.prompt}};
  const std::string& path = *config.prompts_file;
  require<DataError>(std::filesystem::exists(path), "--prompts-file {}: there is no such file. Correct the path.",
                     path);
  const bool is_json = path.ends_with(".jsonl");
  DocumentSource source({.files = {path}});
  std::vector<Prompt> prompts;
  while (const std::optional<RawBatch> batch = source.next())
    for (const RawBatch::Document& document : batch->documents) {
      const std::string_view line = batch->text_of(document);
      if (line.empty()) continue;
      prompts.push_back(
          {.text = with_line(config, document.line, [&] { return is_json ? prompt_of_json(line) : std::string(line); }),
           .line = document.line});
    }
  require<DataError>(!prompts.empty(), "--prompts-file {} has no prompt. Write one a line.", path);
  return prompts;
}

void encode_prompts(const GenerateConfig& config, const Tokenizer& tokenizer, int64_t max_sequence_length,
                    int64_t vocab_size, std::vector<Prompt>& prompts) {
  for (Prompt& prompt : prompts)
    with_line(config, prompt.line, [&] {
      prompt.ids = tokenizer.encode(prompt.text);
      require_prompt(prompt.ids, max_sequence_length, vocab_size);
    });
}

}  // namespace megatron
