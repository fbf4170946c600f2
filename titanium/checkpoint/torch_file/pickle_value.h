// What a Python pickle of a checkpoint can hold: a closed set of plain values. Nothing here ever runs Python.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace titanium::checkpoint {

// Cheap to copy: texts and containers are shared between copies and never change once they are made. A value that
// `read_pickle` returned is a tree of limited depth and size, so recursion over it is safe.
class PickleValue {
 public:
  enum class Kind {
    kNone,
    kBoolean,
    kInteger,
    kReal,
    kString,
    kBytes,
    kList,
    kTuple,
    kDict,
    kGlobal,
    kObject,
    kPersistentId
  };
  using Items = std::vector<PickleValue>;

  PickleValue() = default;  // None
  template <std::same_as<bool> T>
  PickleValue(T value) : kind_(Kind::kBoolean), data_(int64_t{value}) {}
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  PickleValue(T value) : kind_(Kind::kInteger), data_(static_cast<int64_t>(value)) {}
  PickleValue(double value) : kind_(Kind::kReal), data_(value) {}
  PickleValue(std::string value) : PickleValue(Kind::kString, std::move(value)) {}
  PickleValue(std::string_view value) : PickleValue(Kind::kString, std::string(value)) {}
  PickleValue(const char* value) : PickleValue(Kind::kString, std::string(value)) {}

  static PickleValue bytes(std::string content) { return {Kind::kBytes, std::move(content)}; }
  static PickleValue list(Items items) { return {Kind::kList, std::move(items)}; }
  static PickleValue tuple(Items items) { return {Kind::kTuple, std::move(items)}; }
  static PickleValue dict(const std::vector<std::pair<PickleValue, PickleValue>>& entries);
  // A class or function by name, such as the dtype torch.float32.
  static PickleValue global(std::string_view module, std::string_view name);
  // What module.name(*arguments) would return.
  static PickleValue call(std::string_view module, std::string_view name, Items arguments);
  // An object of class module.name that got `state` and no call of its constructor.
  static PickleValue instance(std::string_view module, std::string_view name, PickleValue state);
  // A reference to something outside the pickle: torch.save's storages.
  static PickleValue persistent_id(PickleValue id) { return {Kind::kPersistentId, Items{std::move(id)}}; }

  Kind kind() const { return kind_; }
  bool is_none() const { return kind_ == Kind::kNone; }

  // The content. Each throws Error that says what is here instead, when the value is of another kind.
  bool as_bool() const;
  int64_t as_int() const;
  double as_real() const;  // also of an integer
  const std::string& as_string() const;
  const std::string& as_bytes() const;
  // The items of a list or tuple; for a dict: key, value, key, value; for an object: its arguments; for a persistent
  // id: the id.
  std::span<const PickleValue> items() const;

  // The value of that key of a dict, null when there is none; the last one, should the key come twice.
  const PickleValue* find(std::string_view key) const;
  // The same, but throws Error when it is missing.
  const PickleValue& at(std::string_view key) const;

  // "module.name" of a global or object; empty for others.
  std::string_view type_name() const;
  bool is_call() const;  // of an object: made by `call`, not by `instance`
  const PickleValue& state() const;

  // As Python would print it.
  std::string repr() const;
  // The beginning of that, fit for a message.
  std::string short_repr() const;
  bool operator==(const PickleValue& other) const;

 private:
  friend class PickleMachine;
  struct Object {
    std::string type_name;
    std::shared_ptr<Items> arguments;    // may be those of the tuple that the pickle called it with
    std::shared_ptr<PickleValue> state;  // null: none
    bool is_call = false;
  };
  PickleValue(Kind kind, std::string text) : kind_(kind), data_(std::make_shared<std::string>(std::move(text))) {}
  PickleValue(Kind kind, Items items) : kind_(kind), data_(std::make_shared<Items>(std::move(items))) {}
  PickleValue(Kind kind, Object object) : kind_(kind), data_(std::make_shared<Object>(std::move(object))) {}

  const std::string& text() const { return *std::get<std::shared_ptr<std::string>>(data_); }
  void expect(bool good, std::string_view expected) const;
  // The items of any container, null for others.
  Items* children() const;
  void append_repr(std::string& out) const;

  Kind kind_ = Kind::kNone;
  std::variant<std::monostate, int64_t, double, std::shared_ptr<std::string>, std::shared_ptr<Items>,
               std::shared_ptr<Object>>
      data_;
};

}  // namespace titanium::checkpoint
