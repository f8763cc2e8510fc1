#include "megatron/dist_checkpointing/pickle/pickle_object.h"

#include <algorithm>

#include "megatron/base/error.h"

namespace megatron::pickle {
namespace {

/// The code points of UTF-8 text as bytes. @throw CheckpointError for one above 255.
std::string latin1_bytes(std::string_view text) {
  std::string bytes;
  for (size_t at = 0; at < text.size(); ++at) {
    const auto lead = static_cast<unsigned char>(text[at]);
    if (lead < 0x80) {
      bytes.push_back(text[at]);
      continue;
    }
    require<CheckpointError>((lead == 0xC2 || lead == 0xC3) && at + 1 < text.size(),
                             "[pickle] text that stands for bytes holds a character beyond latin1");
    bytes.push_back(static_cast<char>(((lead & 3) << 6) | (static_cast<unsigned char>(text[++at]) & 0x3F)));
  }
  return bytes;
}

}  // namespace

std::string_view name_of(Kind kind) {
  constexpr std::string_view kNames[] = {"None",  "bool",      "int",        "big int",  "float",   "str",
                                         "bytes", "bytearray", "list",       "tuple",    "set",     "frozenset",
                                         "dict",  "global",    "persistent", "instance", "instance"};
  return kNames[static_cast<size_t>(kind)];
}

template <class T, class Self>
auto& Object::get(Self& self, std::string_view wanted) {
  auto* value = std::get_if<T>(&self.payload_);
  require<CheckpointError>(value != nullptr, "[pickle] {} expected, found {}", wanted, name_of(self.kind_));
  return *value;
}

bool Object::as_bool() const { return get<bool>(*this, "bool"); }
int64_t Object::as_int() const { return get<int64_t>(*this, "int"); }
double Object::as_float() const {
  return kind_ == Kind::kInt ? static_cast<double>(as_int()) : get<double>(*this, "float");
}

const std::string& Object::as_string() const {
  require<CheckpointError>(kind_ == Kind::kString, "[pickle] str expected, found {}", name_of(kind_));
  return get<std::string>(*this, "str");
}

std::string Object::as_bytes() const {
  if (is_instance_of("_codecs", "encode")) {
    const auto arguments = instance().arguments->items();
    require<CheckpointError>(!arguments.empty(), "[pickle] _codecs.encode without arguments");
    return latin1_bytes(arguments[0]->as_string());
  }
  require<CheckpointError>(kind_ != Kind::kString, "[pickle] bytes expected, found str");
  return get<std::string>(*this, "bytes");
}

std::span<Object* const> Object::items() const {
  require<CheckpointError>(kind_ != Kind::kGlobal && kind_ != Kind::kPersistent,
                           "[pickle] list, tuple or set expected, found {}", name_of(kind_));
  return get<std::vector<Object*>>(*this, "list, tuple or set");
}

std::span<const Entry> Object::entries() const { return get<std::vector<Entry>>(*this, "dict"); }

const Object* Object::find(std::string_view key) const {
  const Object* dict = is_instance() ? instance().state : this;
  if (dict == nullptr || dict->kind_ != Kind::kDict) return nullptr;
  const std::span<const Entry> entries = dict->entries();
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry)  // of equal keys the last one counts
    if (entry->key->kind() == Kind::kString && entry->key->as_string() == key) return entry->value;
  return nullptr;
}

const Object& Object::at(std::string_view key) const {
  const Object* found = find(key);
  require<CheckpointError>(found != nullptr, "[pickle] {} has no entry \"{}\"", name_of(kind_), key);
  return *found;
}

const Object& Object::named_part(Kind kind, size_t index) const {
  require<CheckpointError>(kind_ == kind, "[pickle] {} expected, found {}", name_of(kind), name_of(kind_));
  return *get<std::vector<Object*>>(*this, name_of(kind)).at(index);
}
bool Object::is_global(std::string_view module, std::string_view name) const {
  return kind_ == Kind::kGlobal && global_module() == module && global_name() == name;
}

bool Object::is_instance_of(std::string_view module, std::string_view name) const {
  return is_instance() && instance().callable->is_global(module, name);
}
const Instance& Object::instance() const { return *get<std::unique_ptr<Instance>>(*this, "instance"); }

std::vector<Object*>& Object::mutable_items() {
  return is_instance() ? mutable_instance().items : get<std::vector<Object*>>(*this, "list");
}
std::vector<Entry>& Object::mutable_entries() {
  return is_instance() ? mutable_instance().entries : get<std::vector<Entry>>(*this, "dict");
}
Instance& Object::mutable_instance() { return *get<std::unique_ptr<Instance>>(*this, "instance"); }

Object& Graph::add(Kind kind, Object::Payload payload) { return objects_.emplace_back(kind, std::move(payload)); }
Object& Graph::none() { return add(Kind::kNone, {}); }
Object& Graph::boolean(bool value) { return add(Kind::kBool, value); }
Object& Graph::integer(int64_t value) { return add(Kind::kInt, value); }
Object& Graph::real(double value) { return add(Kind::kFloat, value); }
Object& Graph::text(std::string value) { return add(Kind::kString, std::move(value)); }
Object& Graph::list(std::vector<Object*> items) { return add(Kind::kList, std::move(items)); }
Object& Graph::tuple(std::vector<Object*> items) { return add(Kind::kTuple, std::move(items)); }
Object& Graph::dict() { return add(Kind::kDict, std::vector<Entry>{}); }
Object& Graph::global(std::string module, std::string name) {
  return add(Kind::kGlobal, std::vector<Object*>{&text(std::move(module)), &text(std::move(name))});
}
Object& Graph::reduce(Object& callable, std::vector<Object*> arguments) {
  auto made = std::make_unique<Instance>();
  made->callable = &callable;
  made->arguments = &tuple(std::move(arguments));
  return add(Kind::kReduce, std::move(made));
}
Object& Graph::instance(Object& type, Object* state) {
  auto made = std::make_unique<Instance>();
  made->callable = &type;
  made->arguments = &tuple({});
  made->state = state;
  return add(Kind::kNewObject, std::move(made));
}
Object& Graph::persistent(Object& id) { return add(Kind::kPersistent, std::vector<Object*>{&id}); }

void Graph::set(Object& target, std::string key, Object& value) {
  Object& dict = target.is_instance() && target.instance().state ? *target.mutable_instance().state : target;
  dict.mutable_entries().push_back({&text(std::move(key)), &value});
}

}  // namespace megatron::pickle
