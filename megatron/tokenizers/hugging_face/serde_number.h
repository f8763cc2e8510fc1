// Numbers of a tokenizer.json as the reference reads them.
#pragma once

namespace megatron::hugging_face {

/// The value that the reference's JSON reader gives to a number. It divides the integer of the digits by a power of ten
/// and rounds twice, so that the result may be a neighbour of the nearest double. The digits are assumed to be the
/// shortest that stand for the number, as common writers print them.
/// Source: serde_json without its feature float_roundtrip.
/// @param nearest  the finite double that is nearest to the number in the file.
double serde_number(double nearest);

}  // namespace megatron::hugging_face
