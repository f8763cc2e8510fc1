// Regular expressions of Hugging Face's tokenizers, written for Oniguruma.
#pragma once

#include <string>
#include <string_view>

namespace megatron {

/// Rewrites a pattern in Oniguruma's Ruby syntax so that PCRE2 (RegexPattern) finds the same matches: `\w` by the
/// property Alphabetic, scripts without Script_Extensions, `^` and `$` at each line, `{1,3}+` as a repeated group.
/// @throw NotSupported naming the construct that has no equal there.
std::string perl_from_oniguruma(std::string_view pattern);

/// A pattern that matches `text` itself.
std::string quoted_pattern(std::string_view text);

}  // namespace megatron
