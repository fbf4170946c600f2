#include "titanium/checkpoint/torch_file/writer.h"

#include "titanium/base/error.h"
#include "titanium/checkpoint/io/crc32.h"
#include "titanium/checkpoint/torch_file/archive.h"
#include "titanium/checkpoint/torch_file/pickle_writer.h"

namespace titanium::checkpoint {
namespace {

constexpr uint64_t kAlignment = 64;

// A dict or list under construction, or a leaf.
struct Node {
  std::optional<PickleValue> leaf;
  std::vector<std::pair<DcpPath::value_type, std::unique_ptr<Node>>> children;
  std::map<DcpPath::value_type, Node*> index;

  Node& below(const DcpPath::value_type& step) {
    Node*& found = index[step];
    if (found == nullptr) found = children.emplace_back(step, std::make_unique<Node>()).second.get();
    return *found;
  }

  PickleValue value() const {
    if (leaf) return *leaf;
    if (!index.empty() && std::holds_alternative<int64_t>(index.begin()->first)) {  // strings come before integers
      PickleValue::Items items;
      for (const auto& [step, node] : index) items.push_back(node->value());
      return PickleValue::list(std::move(items));
    }
    std::vector<std::pair<PickleValue, PickleValue>> entries;
    for (const auto& [step, node] : children) {
      const auto* key = std::get_if<std::string>(&step);
      entries.emplace_back(key != nullptr ? PickleValue(*key) : PickleValue(std::get<int64_t>(step)), node->value());
    }
    return PickleValue::dict(entries);
  }
};

void put(Node& root, const DcpPath& path, PickleValue value) {
  Node* node = &root;
  for (const auto& step : path) {
    TI_CHECK(!node->leaf, "one entry of the checkpoint lies inside another that is no dict. It cannot be nested.");
    node = &node->below(step);
  }
  TI_CHECK(!node->leaf && node->children.empty(), "two entries of the checkpoint have the same place. Rename one.");
  node->leaf = std::move(value);
}

}  // namespace

TorchFileWriter::TorchFileWriter(const std::filesystem::path& target, std::span<const TorchFileItem> items)
    : file_(target) {
  Node root;
  for (const TorchFileItem& item : items) {
    if (const auto* value = std::get_if<PickleValue>(&item.content)) {
      put(root, item.path, *value);
      continue;
    }
    const auto& [dtype, shape] = std::get<TorchFileItem::TensorKind>(item.content);
    put(root, item.path, torch_tensor_value(dtype, shape, std::to_string(sizes_.size())));
    sizes_.push_back(static_cast<uint64_t>(volume(shape)) * c10::elementSize(dtype));
  }
  add_torch_pickle(zip_, write_pickle(root.value()));
  begin_next();
}

void TorchFileWriter::begin_next() {
  while (current_ < sizes_.size()) {
    left_ = sizes_[current_];
    crc_ = 0;
    file_.write(zip_.begin(fmt::format("data/{}", current_), left_, kAlignment));
    if (left_ > 0) return;
    zip_.end(0);
    ++current_;
  }
}

void TorchFileWriter::write(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  TI_ASSERT(current_ < sizes_.size() && bytes.size() <= left_, "more bytes than the tensors have");
  crc_ = crc32(bytes, crc_);
  file_.write(bytes);
  left_ -= bytes.size();
  if (left_ > 0) return;
  zip_.end(crc_);
  ++current_;
  begin_next();
}

void TorchFileWriter::publish() {
  TI_ASSERT(current_ == sizes_.size(), "tensor {} is not written", current_);
  file_.write(zip_.finish());
  file_.publish();
}

}  // namespace titanium::checkpoint
