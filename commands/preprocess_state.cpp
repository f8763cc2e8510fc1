#include "commands/preprocess_state.h"

#include <fmt/core.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

#include "commands/build_commit.h"
#include "megatron/base/md5.h"
#include "megatron/datasets/atomic_file.h"
#include "megatron/tokenizers/sentence_splitter.h"

namespace megatron {
namespace {
using Json = nlohmann::ordered_json;

std::string md5_of(const std::string& text) { return md5_hex(std::as_bytes(std::span(text))); }

/// Fields that do not change the output. A bad line ends a run with --on-bad-line error, so what is saved has none.
bool changes_output(const std::string& field) {
  static const std::set<std::string> kOthers = {
      "workers",       "log_interval",     "on_bad_line", "resume",       "resume_interval", "find_optimal_num_workers",
      "max_documents", "workers_to_check", "input",       "output_prefix"};
  return !kOthers.contains(field);
}

std::string digest_of(const PunktParameters& parameters) {
  std::string text;
  for (const auto* entries : {&parameters.abbreviations, &parameters.collocations, &parameters.sentence_starters})
    for (const std::string& entry : std::set<std::string>(entries->begin(), entries->end())) text += entry + '\n';
  std::set<std::string> contexts;
  for (const auto& [word, bits] : parameters.contexts) contexts.insert(fmt::format("{} {}\n", word, bits));
  for (const std::string& context : contexts) text += context;
  return md5_of(text);
}

Json json_of(const IndexedDatasetBuilder::SavedState& saved) {
  return {{"bin", saved.bin}, {"bin_bytes", saved.bin_bytes}, {"log", saved.log}, {"log_bytes", saved.log_bytes}};
}

PreprocessState state_of(const Json& json) {
  PreprocessState state{
      .fingerprint = json.at("fingerprint"), .pass = json.at("pass"), .position = {}, .counts = {}, .output = {}};
  const Json& position = json.at("position");
  state.position = {.file = position.at("file"),
                    .offset = position.at("offset"),
                    .line = position.at("line"),
                    .document = position.at("document")};
  const Json& counts = json.at("counts");
  state.counts = {.documents = counts.at("documents"),
                  .input_bytes = counts.at("input_bytes"),
                  .tokens = counts.at("tokens"),
                  .bad_lines = counts.at("bad_lines"),
                  .file_bytes = counts.at("file_bytes")};
  for (const Json& output : json.at("outputs")) {
    state.output.builders.push_back({.bin = output.at("bin"),
                                     .log = output.at("log"),
                                     .bin_bytes = output.at("bin_bytes"),
                                     .log_bytes = output.at("log_bytes")});
    state.output.num_tokens.push_back(output.at("tokens"));
  }
  return state;
}

}  // namespace

std::string preprocess_state_path(const std::string& output_prefix) { return output_prefix + ".resume.json"; }

std::optional<PreprocessState> read_preprocess_state(const std::string& path) {
  std::ifstream file(path);
  if (!file.is_open()) return std::nullopt;
  try {
    return state_of(Json::parse(file));
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

void write_preprocess_state(const std::string& path, const PreprocessState& state) {
  Json outputs = Json::array();
  for (size_t k = 0; k < state.output.builders.size(); ++k) {
    outputs.push_back(json_of(state.output.builders[k]));
    outputs.back()["tokens"] = state.output.num_tokens[k];
  }
  const Json json = {{"fingerprint", state.fingerprint},
                     {"pass", state.pass},
                     {"position",
                      {{"file", state.position.file},
                       {"offset", state.position.offset},
                       {"line", state.position.line},
                       {"document", state.position.document}}},
                     {"counts",
                      {{"documents", state.counts.documents},
                       {"input_bytes", state.counts.input_bytes},
                       {"tokens", state.counts.tokens},
                       {"bad_lines", state.counts.bad_lines},
                       {"file_bytes", state.counts.file_bytes}}},
                     {"outputs", outputs}};
  const std::string text = json.dump(2) + "\n";
  const std::span<const std::byte> content = std::as_bytes(std::span(text));
  write_file_atomically(path, std::span(&content, 1));
}

std::string preprocess_fingerprint(PreprocessDataConfig config, const std::vector<std::string>& files,
                                   const Tokenizer& tokenizer, const SentenceSplitter* splitter) {
  std::string text = fmt::format("build {}\n", build_commit());
  describe(config).for_each([&](const Field& field) {
    if (changes_output(field.name)) text += fmt::format("{} {}\n", field.name, python_text(field.get()));
  });
  for (const TokenizerFile& file : tokenizer.files())
    text += fmt::format("tokenizer {} {}\n", file.name, md5_of(file.content));
  if (splitter != nullptr) text += fmt::format("punkt {}\n", digest_of(splitter->parameters()));
  for (const std::string& file : files)
    text += fmt::format("input {} {} {}\n", file, std::filesystem::file_size(file),
                        std::filesystem::last_write_time(file).time_since_epoch().count());
  return md5_of(text);
}

}  // namespace megatron
