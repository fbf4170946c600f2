#include "titanium/base/error.h"
#include "titanium/base/text/printable.h"
#include "titanium/checkpoint/io/mapped_file.h"
#include "titanium/checkpoint/stored_copy.h"
#include "titanium/checkpoint/torch_file/archive.h"
#include "titanium/checkpoint/weights_source.h"

namespace titanium::checkpoint {
namespace {

using Kind = PickleValue::Kind;

constexpr size_t kNameBytes = size_t{1} << 20, kNameBytesPerByte = 16;  // of the pickle

bool is_tensor(const PickleValue& value) { return value.type_name().starts_with("torch._utils._rebuild_"); }

bool is_sequence(const PickleValue& value) { return value.kind() == Kind::kList || value.kind() == Kind::kTuple; }

// Whether a value is kept as it is: no dict, and no list with tensors or dicts in it.
bool is_leaf(const PickleValue& value) {
  if (value.kind() == Kind::kDict) return false;
  if (!is_sequence(value)) return true;
  return std::ranges::all_of(value.items(), [](const PickleValue& item) { return !is_tensor(item) && is_leaf(item); });
}

std::string name_of(const DcpPath& path) {
  std::string name;
  for (const auto& step : path) {
    if (!name.empty()) name += '.';
    name +=
        std::holds_alternative<int64_t>(step) ? std::to_string(std::get<int64_t>(step)) : std::get<std::string>(step);
  }
  return name;
}

class TorchFileSource : public WeightsSource {
 public:
  explicit TorchFileSource(const std::filesystem::path& path)
      : WeightsSource(path), file_(path, "file of torch.save"), archive_(file_.bytes(), path_) {
    TI_CHECK(archive_.value().kind() == Kind::kDict,
             "{} holds no dict of tensors. Save a dict, such as model.state_dict(), with torch.save.", path_);
    DcpPath root;
    add_all(archive_.value(), root);
  }

  std::string_view format() const override { return "file of torch.save"; }

  std::vector<std::string> values() const override {
    std::vector<std::string> names;
    for (const auto& [name, value] : values_) names.push_back(name);
    return names;
  }
  PickleValue value(const std::string& name) const override {
    const auto found = values_.find(name);
    return found == values_.end() ? WeightsSource::value(name) : found->second;
  }
  DcpPath path_to(const std::string& name) const override { return paths_.at(name); }
  Verification verify() const override {
    Verification found{.damage = {},
                       .checked = archive_.has_checksums()
                                      ? "and tensors and values agree with the checksums that torch wrote with them"
                                      : "but without checksums, so that changed bytes would not be noticed"};
    try {
      archive_.verify();
    } catch (const Error& error) {
      found.damage.emplace_back(error.what());
    }
    return found;
  }

 private:
  void add_all(const PickleValue& value, DcpPath& path) {
    const auto add_below = [&](const PickleValue& item, auto step) {
      path.emplace_back(std::move(step));
      add_all(item, path);
      path.pop_back();
    };
    const auto items =
        value.kind() == Kind::kDict || is_sequence(value) ? value.items() : std::span<const PickleValue>();
    if (value.kind() == Kind::kDict) {
      for (size_t i = 0; i + 1 < items.size(); i += 2) {
        const PickleValue& key = items[i];
        add_below(items[i + 1], key.kind() == Kind::kString ? key.as_string() : key.repr());
      }
    } else if (!is_tensor(value) && is_leaf(value)) {
      values_[add_name(path)] = value;
    } else if (is_sequence(value)) {
      for (size_t i = 0; i < items.size(); ++i) add_below(items[i], static_cast<int64_t>(i));
    } else {
      add_tensor(value, path);
    }
  }

  // Long keys high up come back in every name below them, so a small file could announce names of any size.
  std::string add_name(const DcpPath& path) {
    std::string name = name_of(path);
    name_bytes_ += name.size();
    const size_t most = kNameBytes + kNameBytesPerByte * archive_.pickle_size();
    TI_CHECK(name_bytes_ <= most, "{} has names of more than {} bytes together. Save it with shorter keys.", path_,
             most);
    const bool first = paths_.emplace(name, path).second;
    TI_CHECK(first, "{} has two entries that would both be named \"{}\". Rename one of them.", path_, printable(name));
    return name;
  }

  void add_tensor(const PickleValue& value, const DcpPath& path) {
    const std::string name = add_name(path);
    const StoredTensor stored = archive_.tensor(value);
    // A view may repeat its elements, so a small file can announce a tensor of any size.
    auto bytes = static_cast<int64_t>(c10::elementSize(stored.dtype));
    bool fits = true;
    for (const int64_t size : stored.shape) fits = fits && !__builtin_mul_overflow(bytes, size, &bytes);
    TI_CHECK(fits && static_cast<uint64_t>(bytes) <= file_.bytes().size(),
             "{}: \"{}\" of shape [{}] is larger than the file: an expanded tensor. Save it with contiguous().", path_,
             printable(name), fmt::join(stored.shape, ", "));
    const Box whole{Shape(stored.shape.size(), 0), stored.shape};
    tensors_[name] = {stored.dtype, stored.shape, {{whole, std::filesystem::path(path_).filename().string()}}};
    stored_[name] = stored;
  }

  void copy_box(const std::string& name, const Box& box, const Tensor& destination) const override {
    copy_stored(stored_.at(name), box.offset, destination);
  }

  MappedFile file_;
  TorchArchive archive_;
  std::map<std::string, StoredTensor> stored_;
  std::map<std::string, PickleValue> values_;
  std::map<std::string, DcpPath> paths_;
  size_t name_bytes_ = 0;  // of all names
};

}  // namespace

std::unique_ptr<WeightsSource> open_torch_file(const std::filesystem::path& path) {
  return std::make_unique<TorchFileSource>(path);
}

}  // namespace titanium::checkpoint
