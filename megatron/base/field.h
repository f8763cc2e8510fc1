// A config struct's description of itself: one Field per member, bound to one object.
// Command line, help, start banner and JSON are made from it, so that a setting is written down once.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "megatron/base/error.h"
#include "megatron/base/field_value.h"

namespace megatron {

/// How the words of a flag read.
enum class WordKind { kSwitch, kInteger, kNumber, kText };

/// The default upper bound of whole numbers: products of two of them cannot overflow.
constexpr double kLargestCount = 2147483647;

/// Says whether something holds for the object that a table is bound to.
using FieldCondition = std::function<bool()>;

/// A flag that does something else than in Megatron-LM: a row of docs/differences.md.
struct FieldDifference {
  std::string megatron;          ///< what Megatron-LM does
  std::string ours;              ///< what happens here, and why
  FieldCondition in_force = {};  ///< whether a run shows it; none: no run does, as where a command line is rejected
  std::string topic = {};        ///< empty: the flag
};

/// The condition under which a setting has an effect: "--save", "more than one rank".
struct FieldNeed {
  std::string text;
  FieldCondition is_met;
};

/// A combination with other settings that is valid, but that cannot run yet.
struct FieldLimit {
  FieldCondition is_exceeded;
  std::string text;  ///< the combination, the reason and the remedy
};

/// The names that other programs have for a setting.
struct FieldSynonyms {
  std::string names;   ///< as FlagSynonym::names
  std::string remark;  ///< follows the suggestion
};

/// The use of a setting when the arguments stored in a checkpoint are taken over (--use-checkpoint-args).
enum class StoredValue { kIgnored, kTakenIfNotSet, kTaken };

/// One setting, and everything that the program knows of it: whoever treats some settings in a special way asks for an
/// attribute and keeps no list of names. The setters return the field, so that a description reads as one sentence.
struct Field {
  std::string name;                    ///< Megatron's argument name
  std::vector<std::string> flags;      ///< spellings; the first is the one shown. None: derived, not given
  std::vector<std::string> off_flags;  ///< switches: spellings that turn it off
  std::vector<std::string> aliases;    ///< spellings of other versions and scripts: accepted, and named where given
  std::string help;                    ///< one sentence
  std::string unit;                    ///< "tokens", "samples" ...
  WordKind kind = WordKind::kText;
  bool is_list = false;
  size_t min_words = 1;  ///< this and the next: of a list
  std::optional<size_t> max_words;
  std::vector<std::string> choices;
  std::vector<std::string> later_choices;  ///< Megatron's choices that are refused because they are not here yet
  std::map<std::string, std::string> choice_aliases;  ///< other names of choices, which may be later ones
  std::optional<double> least, most;
  bool least_excluded = false, most_excluded = false;
  std::string default_text;       ///< what a value that is not given follows from
  std::string no_effect;          ///< why giving it changes nothing; empty: it has its effect
  std::string not_yet;            ///< why only the default can run so far; empty: all can run
  std::optional<FieldNeed> need;  ///< without it the setting has no effect
  std::vector<FieldLimit> limits;
  std::vector<FieldDifference> differences;
  std::vector<FieldSynonyms> synonyms;
  std::string example;         ///< flags with which this one has its effect, where a value alone does not show it
  bool per_host = false;       ///< hosts of one run may have different values
  bool of_whole_runs = false;  ///< about logs, checkpoints, evaluation or the end: commands of a few steps reject it
  bool sets_num_ranks = false;
  bool weights_meaning = false;  ///< with another value, the weights of a checkpoint mean something else
  bool orders_samples = false;   ///< with another value, a shuffled data set has another order
  StoredValue stored = StoredValue::kIgnored;
  std::vector<std::string> former_names;                  ///< names under which other versions of Megatron store it
  std::function<FieldValue(std::string_view)> read_word;  ///< replaces the reading by `kind`; throws ConfigError
  std::function<FieldValue()> get;
  std::function<void(const FieldValue&)> set;  ///< throws ConfigError if the value does not fit

  Field& named(std::vector<std::string> spellings) { return flags = std::move(spellings), *this; }
  Field& turned_off_by(std::vector<std::string> spellings) {
    return flags.clear(), off_flags = std::move(spellings), *this;
  }
  Field& also_turned_off_by(std::string spelling) { return off_flags.push_back(std::move(spelling)), *this; }
  Field& also(std::vector<std::string> spellings) { return aliases = std::move(spellings), *this; }
  Field& one_of(std::vector<std::string> names) { return choices = std::move(names), *this; }
  Field& later(std::vector<std::string> names) { return later_choices = std::move(names), *this; }
  Field& choice_also(std::string alias, std::string choice) {
    return choice_aliases.emplace(std::move(alias), std::move(choice)), *this;
  }
  Field& in(std::string unit_name) { return unit = std::move(unit_name), *this; }
  Field& at_least(double bound) { return least = bound, *this; }
  Field& above(double bound) { return least = bound, least_excluded = true, *this; }
  Field& at_most(double bound) { return most = bound, *this; }
  Field& below(double bound) { return most = bound, most_excluded = true, *this; }
  Field& by_default(std::string text) { return default_text = std::move(text), *this; }
  Field& may_be_empty() { return min_words = 0, *this; }
  Field& exactly(size_t num_words) { return min_words = num_words, max_words = num_words, *this; }
  Field& without_effect(std::string reason) { return no_effect = std::move(reason), *this; }
  /// Another value than the default is rejected when a run begins, for this reason.
  Field& not_supported_yet(std::string reason) { return not_yet = std::move(reason), *this; }
  Field& needs(std::string text, FieldCondition is_met) {
    return need = FieldNeed{std::move(text), std::move(is_met)}, *this;
  }
  Field& cannot_run_where(FieldCondition is_exceeded, std::string text) {
    return limits.push_back({std::move(is_exceeded), std::move(text)}), *this;
  }
  Field& differs(FieldDifference difference) { return differences.push_back(std::move(difference)), *this; }
  Field& known_as(std::string names, std::string remark = {}) {
    return synonyms.push_back({std::move(names), std::move(remark)}), *this;
  }
  Field& such_as(std::string words) { return example = std::move(words), *this; }
  Field& differs_between_hosts() { return per_host = true, *this; }
  Field& for_whole_runs() { return of_whole_runs = true, *this; }
  Field& counts_ranks() { return sets_num_ranks = true, *this; }
  /// --use-checkpoint-args takes it from the checkpoint, and a run that resumes with another value is warned.
  Field& gives_weights_meaning() { return weights_meaning = true, stored = StoredValue::kTaken, *this; }
  /// --use-checkpoint-args takes it from the checkpoint, but a run may go on with another value.
  Field& taken_from_checkpoint(StoredValue how = StoredValue::kTaken) { return stored = how, *this; }
  Field& sets_sample_order() { return orders_samples = true, *this; }
  Field& also_stored_as(std::string name) { return former_names.push_back(std::move(name)), *this; }
  Field& read_by(std::function<FieldValue(std::string_view)> reader) { return read_word = std::move(reader), *this; }

  /// All spellings: those of `flags`, `aliases` and `off_flags`.
  std::vector<std::string> spellings() const;
  bool given_by_flag() const { return !flags.empty() || !off_flags.empty(); }
  /// The spelling to name it by in texts.
  const std::string& spelling() const { return flags.empty() ? off_flags.front() : flags.front(); }
};

struct FieldGroup {
  std::string title;
  std::string text;  ///< what the group is about, for --help
  std::deque<Field> fields;
  bool of_whole_runs = false;  ///< of all fields that are added

  FieldGroup& for_whole_runs() { return of_whole_runs = true, *this; }
};

/// All fields of an object, in groups. It refers to the object's members, which must outlive it and stay in place.
///
///     FieldTable table;
///     table.begin_group("Size", "How large the model is.");
///     table.add("num_layers", config.num_layers, "decoder layers").at_least(1);  // --num-layers
class FieldTable {
 public:
  FieldGroup& begin_group(std::string title, std::string text) {
    return groups_.emplace_back(FieldGroup{std::move(title), std::move(text), {}});
  }

  /// A setting whose flag is "--" and the name with dashes. A bool becomes a switch that turns it on.
  template <class T>
  Field& add(std::string_view name, T& value, std::string_view help) {
    Field& field = append<T>(name, help);
    field.get = [&value] { return field_detail::Conversion<T>::to(value); };
    field.set = [&value](const FieldValue& held) { value = field_detail::Conversion<T>::from(held); };
    return field;
  }
  /// A bool that is on by default: its flags are --no-NAME and --disable-NAME.
  Field& add_on(std::string_view name, bool& value, std::string_view help);
  /// A setting of a type that has no conversion: the caller sets `get`, `set` and `read_word`.
  Field& add_untyped(std::string_view name, WordKind kind, std::string_view help) {
    return append_plain(name, help, kind, false);
  }
  /// A value that follows from other settings: shown and stored, not given.
  template <class T>
  Field& add_derived(std::string_view name, T& value, std::string_view help) {
    return add(name, value, help).named({});
  }

  const std::deque<FieldGroup>& groups() const { return groups_; }
  std::deque<FieldGroup>& groups() { return groups_; }
  /// The field with this name, or null.
  Field* find(std::string_view name);
  /// The field that has this spelling of a flag, or null.
  const Field* find_flag(std::string_view flag) const;
  /// Calls `visit(const Field&)` for each field, in order.
  template <class Visit>
  void for_each(Visit visit) const {
    for (const FieldGroup& group : groups_)
      for (const Field& field : group.fields) visit(field);
  }

 private:
  template <class T>
  Field& append(std::string_view name, std::string_view help);
  Field& append_plain(std::string_view name, std::string_view help, WordKind kind, bool is_list);

  std::deque<FieldGroup> groups_;
};

template <class T>
Field& FieldTable::append(std::string_view name, std::string_view help) {
  using Element = typename field_detail::ElementOf<T>::type;
  constexpr WordKind kind = std::is_same_v<Element, bool>      ? WordKind::kSwitch
                            : std::is_same_v<Element, int64_t> ? WordKind::kInteger
                            : std::is_same_v<Element, double>  ? WordKind::kNumber
                                                               : WordKind::kText;
  Field& field = append_plain(name, help, kind, field_detail::ElementOf<T>::is_list);
  if (kind == WordKind::kInteger) field.most = kLargestCount;
  if constexpr (NamedEnum<Element>)
    for (const auto& [enumerator, choice] : names_of_enum(Element{})) field.choices.emplace_back(choice);
  return field;
}

}  // namespace megatron
