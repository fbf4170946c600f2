#include "titanium/checkpoint/torch_file/pickle_value.h"

#include <array>

#include "titanium/base/error.h"
#include "titanium/base/text/printable.h"

namespace titanium::checkpoint {
namespace {

constexpr std::array<std::string_view, 12> kKindNames = {"None",   "a bool",  "an int",    "a float",
                                                         "a str",  "bytes",   "a list",    "a tuple",
                                                         "a dict", "a class", "an object", "a reference"};

void append_quoted(std::string& out, std::string_view text, bool bytes) {
  out += bytes ? "b'" : "'";
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '\'' || c == '\\') {
      out += {'\\', c};
    } else if (code < 0x20 || code == 0x7f || (bytes && code >= 0x80)) {
      fmt::format_to(std::back_inserter(out), "\\x{:02x}", code);
    } else {
      out += c;
    }
  }
  out += "'";
}

std::string real_repr(double value) {
  std::string text = fmt::format("{}", value);
  const bool integral = text.find_first_not_of("-0123456789") == std::string::npos;
  return integral ? text + ".0" : text;
}

}  // namespace

PickleValue PickleValue::dict(const std::vector<std::pair<PickleValue, PickleValue>>& entries) {
  Items items;
  items.reserve(2 * entries.size());
  for (const auto& [key, value] : entries) {
    items.push_back(key);
    items.push_back(value);
  }
  return {Kind::kDict, std::move(items)};
}

PickleValue PickleValue::global(std::string_view module, std::string_view name) {
  return {Kind::kGlobal, fmt::format("{}.{}", module, name)};
}

PickleValue PickleValue::call(std::string_view module, std::string_view name, Items arguments) {
  return {Kind::kObject,
          Object{fmt::format("{}.{}", module, name), std::make_shared<Items>(std::move(arguments)), nullptr, true}};
}

PickleValue PickleValue::instance(std::string_view module, std::string_view name, PickleValue state) {
  auto shared = state.is_none() ? nullptr : std::make_shared<PickleValue>(std::move(state));
  return {Kind::kObject,
          Object{fmt::format("{}.{}", module, name), std::make_shared<Items>(), std::move(shared), false}};
}

void PickleValue::expect(bool good, std::string_view expected) const {
  TI_CHECK(good, "{} is expected where the file has {}. The file is damaged or of another format.", expected,
           type_name().empty() ? kKindNames[static_cast<size_t>(kind_)] : type_name());
}

bool PickleValue::as_bool() const {
  expect(kind_ == Kind::kBoolean, "a bool");
  return std::get<int64_t>(data_) != 0;
}

int64_t PickleValue::as_int() const {
  expect(kind_ == Kind::kInteger, "an int");
  return std::get<int64_t>(data_);
}

double PickleValue::as_real() const {
  if (kind_ == Kind::kInteger) return static_cast<double>(as_int());
  expect(kind_ == Kind::kReal, "a float");
  return std::get<double>(data_);
}

const std::string& PickleValue::as_string() const {
  expect(kind_ == Kind::kString, "a str");
  return text();
}

const std::string& PickleValue::as_bytes() const {
  expect(kind_ == Kind::kBytes, "bytes");
  return text();
}

PickleValue::Items* PickleValue::children() const {
  if (const auto* items = std::get_if<std::shared_ptr<Items>>(&data_)) return items->get();
  if (const auto* object = std::get_if<std::shared_ptr<Object>>(&data_)) return (*object)->arguments.get();
  return nullptr;
}

std::span<const PickleValue> PickleValue::items() const {
  const Items* items = children();
  expect(items != nullptr, "a list, tuple or dict");
  return *items;
}

const PickleValue* PickleValue::find(std::string_view key) const {
  expect(kind_ == Kind::kDict, "a dict");
  const auto all = items();
  for (size_t i = all.size(); i >= 2; i -= 2) {
    const PickleValue& candidate = all[i - 2];
    if (candidate.kind_ == Kind::kString && candidate.text() == key) return &all[i - 1];
  }
  return nullptr;
}

const PickleValue& PickleValue::at(std::string_view key) const {
  const PickleValue* found = find(key);
  TI_CHECK(found != nullptr,
           "the key '{}' is missing in a dict of the pickle. The file is damaged or of another format.", key);
  return *found;
}

std::string_view PickleValue::type_name() const {
  if (kind_ == Kind::kGlobal) return text();
  if (kind_ == Kind::kObject) return std::get<std::shared_ptr<Object>>(data_)->type_name;
  return {};
}

bool PickleValue::is_call() const {
  expect(kind_ == Kind::kObject, "an object");
  return std::get<std::shared_ptr<Object>>(data_)->is_call;
}

const PickleValue& PickleValue::state() const {
  static const PickleValue none;
  expect(kind_ == Kind::kObject, "an object");
  const auto& object = *std::get<std::shared_ptr<Object>>(data_);
  return object.state ? *object.state : none;
}

std::string PickleValue::repr() const {
  std::string out;
  append_repr(out);
  return out;
}

std::string PickleValue::short_repr() const { return printable(repr(), 80); }

void PickleValue::append_repr(std::string& out) const {
  const auto append_items = [&](std::string_view open, std::string_view close) {
    out += open;
    const auto all = items();
    for (size_t i = 0; i < all.size(); ++i) {
      if (i > 0) out += kind_ == Kind::kDict && i % 2 == 1 ? ": " : ", ";
      all[i].append_repr(out);
    }
    out += close;
  };
  switch (kind_) {
    case Kind::kNone:
      out += "None";
      return;
    case Kind::kBoolean:
      out += as_bool() ? "True" : "False";
      return;
    case Kind::kInteger:
      out += std::to_string(as_int());
      return;
    case Kind::kReal:
      out += real_repr(as_real());
      return;
    case Kind::kString:
    case Kind::kBytes:
      return append_quoted(out, text(), kind_ == Kind::kBytes);
    case Kind::kList:
      return append_items("[", "]");
    case Kind::kTuple:
      return append_items("(", items().size() == 1 ? ",)" : ")");
    case Kind::kDict:
      return append_items("{", "}");
    case Kind::kGlobal:
      out += text();
      return;
    case Kind::kObject:
      out += type_name();
      append_items("(", "");
      if (!state().is_none()) {
        out += "; ";
        state().append_repr(out);
      }
      out += ")";
      return;
    case Kind::kPersistentId:
      return append_items("<", ">");
  }
}

bool PickleValue::operator==(const PickleValue& other) const {
  if (kind_ != other.kind_ || type_name() != other.type_name()) return false;
  if (kind_ == Kind::kString || kind_ == Kind::kBytes) return text() == other.text();
  if (kind_ == Kind::kReal) return as_real() == other.as_real();
  if (kind_ == Kind::kInteger || kind_ == Kind::kBoolean) {
    return std::get<int64_t>(data_) == std::get<int64_t>(other.data_);
  }
  if (children() == nullptr) return true;  // none and global
  const auto mine = items(), theirs = other.items();
  if (!std::equal(mine.begin(), mine.end(), theirs.begin(), theirs.end())) return false;
  return kind_ != Kind::kObject || (is_call() == other.is_call() && state() == other.state());
}

}  // namespace titanium::checkpoint
