#include "megatron/training/config/flag_synonyms.h"

#include "megatron/training/config/fields.h"

namespace megatron {

std::vector<FlagSynonym> flag_synonyms() {
  PretrainConfig defaults;
  return synonyms_of(describe(defaults));
}

}  // namespace megatron
