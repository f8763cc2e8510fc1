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

/// A place on a leading axis of a stored tensor, over layers or over experts.
struct LeadingPlace {
  int64_t index = 0, size = 1;
};

/// A box of a parameter, and where a Hugging Face tensor has its elements.
struct WeightPiece {
  std::string tensor;
  Box there;  ///< the smallest box with all of them; without the axis of `stack`
  Box here;   ///< in the parameter of one layer, or of one expert
  bool is_transposed = false;
  int64_t step = 1;                        ///< rows of the parameter are so many rows (columns if transposed) apart
  std::optional<LeadingPlace> stack = {};  ///< on a first axis of the Hugging Face tensor, over experts

  /// Says whether neighbouring elements of a row of the parameter, and its rows, are neighbours in the tensor too.
  bool is_box() const { return !is_transposed && step == 1; }
};
/// The smallest box of the Hugging Face tensor with the elements of `part`, a box of the parameter within piece.here.
Box tensor_box(const WeightPiece& piece, const Box& part);
/// The strides of the parameter's dimensions in a Hugging Face tensor (or a box of it) with these strides.
Shape parameter_strides(const WeightPiece& piece, const Shape& tensor_strides);
/// `strides` of the parameter's dimensions as those of the tensor's. @param piece  is a box
Shape tensor_strides(const WeightPiece& piece, const Shape& strides);

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
  /// Those of them that repeat another one: its name, by theirs.
  const std::map<std::string, std::string, std::less<>>& copies() const { return copies_; }

 private:
  void add(ParameterPieces parameter, const TensorRule& rule, const TransformerConfig& config, int64_t num_rows,
           std::span<const int64_t> numbers);

  std::vector<ParameterPieces> parameters_;
  std::map<std::string, Shape, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> copies_;
};

/// The tensor whose presence says that layers for further tokens are stored behind those of the decoder; nothing where
/// the family has none.
std::optional<std::string> further_projection(const Family& family, int64_t num_layers);
/// The shape of the tensor in checkpoints, with its leading axes, and the part of it that one parameter is.
Shape stored_shape(const ParameterPieces& parameter);
Box stored_box(const ParameterPieces& parameter);

}  // namespace megatron::hugging_face
