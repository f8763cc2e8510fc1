// Settings that are given without what they need.
#pragma once

#include "megatron/base/field.h"
#include "megatron/base/given_fields.h"
#include "megatron/base/mistakes.h"

namespace megatron {

/// Adds a mistake for each given field whose Field::need is not met: "--sample needs --seq-length". For commands that
/// reject such a flag; in pretrain_gpt it is accepted, as in Megatron-LM, and has no effect.
/// @param table  bound to the object that the flags have set.
void check_needs(const FieldTable& table, const GivenFields& given, Mistakes& mistakes);

}  // namespace megatron
