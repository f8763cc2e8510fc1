#include "commands/punkt_model.h"

#include <fmt/core.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/word_list.h"

namespace megatron {
namespace {

/// The folders that NLTK searches for data.
std::vector<std::string> nltk_data_folders() {
  std::vector<std::string> folders;
  if (const char* const given = std::getenv("NLTK_DATA"); given != nullptr && *given != '\0') {
    std::istringstream list(given);
    for (std::string folder; std::getline(list, folder, ':');) folders.push_back(folder);
    return folders;
  }
  if (const char* const home = std::getenv("HOME")) folders.push_back(std::string(home) + "/nltk_data");
  for (const char* const base : {"/usr/share", "/usr/local/share", "/usr/lib", "/usr/local/lib"})
    folders.push_back(std::string(base) + "/nltk_data");
  return folders;
}

}  // namespace

PunktParameters find_punkt_model(const std::optional<std::string>& folder, const std::string& language) {
  if (folder == "none") return {};
  if (folder) return read_punkt_parameters(*folder);
  std::vector<std::string> searched;
  for (const std::string& data : nltk_data_folders()) {
    searched.push_back(fmt::format("{}/tokenizers/punkt_tab/{}", data, language));
    if (std::filesystem::is_directory(searched.back())) return read_punkt_parameters(searched.back());
  }
  throw DataError(fmt::format(
      "--split-sentences: there is no Punkt model of '{}' in {}. Get NLTK's with: python -m nltk.downloader punkt_tab; "
      "or name its folder with --punkt-model FOLDER; or split by rules alone, without known abbreviations, with "
      "--punkt-model none",
      language, joined(searched, ", ")));
}

}  // namespace megatron
