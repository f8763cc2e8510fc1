// Which part of which Hugging Face tensor is which part of which of Megatron's parameters, both ways.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "megatron/core/box.h"
#include "megatron/models/hugging_face/family.h"

namespace megatron {
struct TransformerConfig;
class Model;
}  // namespace megatron

namespace megatron::hugging_face {

/// A box of a Hugging Face tensor that is a box of a parameter.
struct WeightPiece {
  std::string tensor;
  Box there;  ///< in the Hugging Face tensor
  Box here;   ///< in the parameter of one layer, or of one expert
  bool is_transposed = false;
};

/// A place on a leading axis of a stored tensor, over layers or over experts.
struct LeadingPlace {
  int64_t index = 0, size = 1;
};

/// One of Megatron's parameters, whole, and what it is made of. Rows that no piece covers pad the vocabulary.
struct ParameterPieces {
  std::string key;                    ///< in checkpoints
  std::vector<LeadingPlace> leading;  ///< its places on the axes that the stored tensor has before those of `shape`
  Shape shape;                        ///< of one layer, or of one expert
  bool is_padded = false;             ///< rows at the end pad the vocabulary; runs may differ in their number
  std::optional<int64_t> layer = {};  ///< its place on the axis over layers, where there is one
  std::vector<WeightPiece> pieces = {};
};

/// Every parameter of a model, from the rules of its family.
class WeightMap {
 public:
  /// @param model  whole on this rank; a meta device is enough.
  /// @throw NotSupported listing the parameters that the family has no rule for.
  WeightMap(const Family& family, const Model& model);

  const std::vector<ParameterPieces>& parameters() const { return parameters_; }
  /// The Hugging Face tensors with their shapes, by name.
  const std::map<std::string, Shape, std::less<>>& tensors() const { return tensors_; }

 private:
  void add(ParameterPieces parameter, const TensorRule& rule, const TransformerConfig& config, int64_t num_rows,
           std::span<const int64_t> numbers);

  std::vector<ParameterPieces> parameters_;
  std::map<std::string, Shape, std::less<>> tensors_;
};

/// The shape of the tensor in checkpoints, with its leading axes, and the part of it that one parameter is.
Shape stored_shape(const ParameterPieces& parameter);
Box stored_box(const ParameterPieces& parameter);

}  // namespace megatron::hugging_face
