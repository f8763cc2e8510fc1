// The settings that only one family of models has.
#pragma once

#include <any>
#include <functional>
#include <utility>

#include "megatron/base/error.h"
#include "megatron/base/field.h"

namespace megatron {

/// A struct with its description as fields: flags of `megatron pretrain_NAME`, its --help, and arguments of its
/// checkpoints. A value: each configuration has a copy.
///
///     FamilyOptions(ToyOptions{}, [](ToyOptions& options, FieldTable& table) {
///       table.begin_group("Toy", "What a toy tells of each word.");
///       table.add("toy_num_kinds", options.num_kinds, "kinds of words").at_least(2).gives_weights_meaning();
///     });
class FamilyOptions {
 public:
  /// There are no settings.
  FamilyOptions() = default;
  /// @param defaults  the values of a command line without flags
  template <class Options, class Describe>
  FamilyOptions(Options defaults, Describe describe)
      : defaults_(defaults), values_(std::move(defaults)), describe_([describe](std::any& values, FieldTable& table) {
          describe(*std::any_cast<Options>(&values), table);
        }) {}

  /// Adds the fields, bound to these values, which must outlive the table.
  void describe(FieldTable& table) {
    if (describe_) describe_(values_, table);
  }
  /// The struct with the values. @throw InternalError if it is of another type.
  template <class Options>
  const Options& as() const {
    const auto* values = std::any_cast<Options>(&values_);
    require<InternalError>(values != nullptr, "[FamilyOptions] the settings of this family are of another type.");
    return *values;
  }
  /// The same settings as no flag has changed them.
  FamilyOptions with_defaults() const {
    FamilyOptions options = *this;
    options.values_ = defaults_;
    return options;
  }

 private:
  std::any defaults_, values_;
  std::function<void(std::any& values, FieldTable& table)> describe_;
};

}  // namespace megatron
