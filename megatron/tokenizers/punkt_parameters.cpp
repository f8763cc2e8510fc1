#include "megatron/tokenizers/punkt_parameters.h"

#include <charconv>
#include <fstream>
#include <functional>
#include <system_error>

#include "megatron/base/error.h"

namespace megatron {
namespace {

/// Calls `use` for each line and its number, counted from 1.
void for_each_line(const std::string& path, const std::function<void(const std::string&, int64_t)>& use) {
  std::ifstream file(path, std::ios::binary);
  require<DataError>(file.is_open(),
                     "{}: cannot be read. A folder of a Punkt model has abbrev_types.txt, collocations.tab, "
                     "ortho_context.tab and sent_starters.txt; get it with: python -m nltk.downloader punkt_tab",
                     path);
  int64_t number = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.ends_with('\r')) line.pop_back();
    use(line, ++number);
  }
}

std::unordered_set<std::string> read_set(const std::string& path) {
  std::unordered_set<std::string> entries;
  for_each_line(path, [&](const std::string& line, int64_t) { entries.insert(line); });
  return entries;
}

}  // namespace

bool PunktParameters::is_collocation(std::string_view first, std::string_view second) const {
  if (collocations.empty()) return false;
  std::string pair(first);
  pair += '\t';
  pair += second;
  return collocations.contains(pair);
}

uint32_t PunktParameters::context_of(const std::string& type) const {
  const auto found = contexts.find(type);
  return found == contexts.end() ? 0 : found->second;
}

PunktParameters read_punkt_parameters(const std::string& folder) {
  PunktParameters parameters;
  parameters.abbreviations = read_set(folder + "/abbrev_types.txt");
  parameters.sentence_starters = read_set(folder + "/sent_starters.txt");
  const std::string collocations = folder + "/collocations.tab", contexts = folder + "/ortho_context.tab";
  for_each_line(collocations, [&](const std::string& line, int64_t number) {
    require<DataError>(line.find('\t') != line.npos, "{} line {}: '{}' is not two words with a tab between them",
                       collocations, number, line);
    parameters.collocations.insert(line);
  });
  for_each_line(contexts, [&](const std::string& line, int64_t number) {
    const size_t tab = line.find('\t');
    uint32_t bits = 0;
    const char* const begin = line.data() + (tab == line.npos ? line.size() : tab + 1);
    const char* const end = line.data() + line.size();
    const auto [last, error] = std::from_chars(begin, end, bits);
    require<DataError>(error == std::errc() && last == end, "{} line {}: '{}' is not a word, a tab and a number",
                       contexts, number, line);
    parameters.contexts[line.substr(0, tab)] = bits;
  });
  return parameters;
}

}  // namespace megatron
