// Finds the Punkt model of preprocess_data.
#pragma once

#include <optional>
#include <string>

#include "megatron/tokenizers/punkt_parameters.h"

namespace megatron {

/// The parameters for --split-sentences.
/// @param folder    --punkt-model: a folder of NLTK's punkt_tab, or "none" for no parameters; not given: the folder of
///                  `language` in $NLTK_DATA or, if that is not set, where NLTK searches
/// @param language  --lang
/// @throw DataError if there is no model, naming the folders that were searched, or if it is malformed.
PunktParameters find_punkt_model(const std::optional<std::string>& folder, const std::string& language);

}  // namespace megatron
