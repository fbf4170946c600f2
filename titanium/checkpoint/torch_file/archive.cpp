#include "titanium/checkpoint/torch_file/archive.h"

#include <algorithm>

#include "titanium/base/error.h"
#include "titanium/base/text/printable.h"
#include "titanium/checkpoint/torch_file/dtype.h"
#include "titanium/checkpoint/torch_file/former_file.h"
#include "titanium/checkpoint/torch_file/pickle_reader.h"
#include "titanium/checkpoint/torch_file/pickle_writer.h"

namespace titanium::checkpoint {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr size_t kMaxDims = 64;  // what ATen's operators take
constexpr std::string_view kVersion = "3\n";
constexpr std::string_view kRemedy = "The file is damaged or of another format: fetch or write it again.";

Shape read_shape(const PickleValue& value, const std::string& what) {
  Shape shape;
  const auto items = value.items();
  TI_CHECK(value.kind() == PickleValue::Kind::kTuple && items.size() <= kMaxDims,
           "{}: the shape of a tensor is not a tuple of at most {} sizes. {}", what, kMaxDims, kRemedy);
  for (const PickleValue& item : items) {
    shape.push_back(item.as_int());
    TI_CHECK(shape.back() >= 0, "{}: a tensor has a size or stride of {}. {}", what, shape.back(), kRemedy);
  }
  return shape;
}

// Number of elements from the first one to the end of the last one; nothing when that is beyond 64 bits.
std::optional<int64_t> reach(const Shape& shape, const Shape& strides) {
  int64_t last = 0;
  for (size_t dim = 0; dim < shape.size(); ++dim) {
    int64_t step = 0;
    if (shape[dim] == 0) return 0;
    if (__builtin_mul_overflow(shape[dim] - 1, strides[dim], &step) || __builtin_add_overflow(last, step, &last)) {
      return std::nullopt;
    }
  }
  return last + 1;
}

PickleValue tuple_of(const Shape& shape) { return PickleValue::tuple({shape.begin(), shape.end()}); }

}  // namespace

void add_torch_pickle(ZipBuilder& zip, const std::string& pickle) {
  zip.add("data.pkl", pickle);
  zip.add("byteorder", "little");
  zip.add("version", kVersion);
}

PickleValue torch_tensor_value(Dtype tensor_dtype, const Shape& shape, std::string_view storage_name) {
  const TorchDtype& dtype = torch_dtype(tensor_dtype);
  const int64_t elements = volume(shape);
  Shape strides(shape.size(), 1);
  for (size_t dim = shape.size(); dim > 1; --dim) {
    strides[dim - 2] = strides[dim - 1] * std::max<int64_t>(shape[dim - 1], 1);
  }
  const bool typed = !dtype.storage.empty();
  const int64_t storage_size = typed ? elements : elements * static_cast<int64_t>(c10::elementSize(dtype.dtype));
  const PickleValue type =
      typed ? PickleValue::global("torch", dtype.storage) : PickleValue::global("torch.storage", "UntypedStorage");
  const PickleValue storage =
      PickleValue::persistent_id(PickleValue::tuple({"storage", type, storage_name, "cpu", storage_size}));
  PickleValue::Items arguments = {storage,           0,     tuple_of(shape),
                                  tuple_of(strides), false, PickleValue::call("collections", "OrderedDict", {})};
  if (!typed) arguments.push_back(PickleValue::global("torch", dtype.name));
  return PickleValue::call("torch._utils", typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3", std::move(arguments));
}

TorchArchive::TorchArchive(std::span<const std::byte> bytes, const std::string& what)
    : what_(what),
      zip_(is_former_torch_file(bytes) ? ZipArchive(former_torch_records(bytes, what), what)
                                       : ZipArchive(bytes, what)) {
  if (const auto* order = zip_.find("byteorder")) {
    const std::string_view text(reinterpret_cast<const char*>(order->bytes.data()), order->bytes.size());
    TI_CHECK(text == "little", "{}: the byte order is \"{}\". Save it again on a little-endian machine.", what,
             printable(text));
  }
  value_ = read_pickle(zip_.record("data.pkl").bytes, what);
}

StoredTensor TorchArchive::tensor(const PickleValue& object) const {
  const bool is_parameter = object.type_name() == "torch._utils._rebuild_parameter" && !object.items().empty();
  const PickleValue& inner = is_parameter ? object.items().front() : object;
  const bool typed = inner.type_name() == "torch._utils._rebuild_tensor_v2";
  TI_CHECK(typed || inner.type_name() == "torch._utils._rebuild_tensor_v3",
           "{}: a tensor is expected, but {} was saved. Check that the name is that of a tensor.", what_,
           inner.type_name().empty() ? "a plain value" : inner.type_name());
  const auto arguments = inner.items();
  const bool has_storage = arguments.size() >= (typed ? 6U : 7U) &&
                           arguments[0].kind() == PickleValue::Kind::kPersistentId &&
                           arguments[0].items()[0].kind() == PickleValue::Kind::kTuple;
  const auto storage = has_storage ? arguments[0].items()[0].items() : std::span<const PickleValue>();
  TI_CHECK(storage.size() >= 5 && storage[0] == PickleValue("storage"), "{}: a tensor has no storage. {}", what_,
           kRemedy);
  const TorchDtype* dtype =
      typed ? find_torch_storage(storage[1].type_name()) : find_torch_dtype(arguments[6].type_name());
  TI_CHECK(dtype != nullptr, "{}: a tensor is of the unknown type {}. Convert it to another dtype.", what_,
           (typed ? storage[1] : arguments[6]).short_repr());

  StoredTensor found{
      .dtype = dtype->dtype, .shape = read_shape(arguments[2], what_), .strides = read_shape(arguments[3], what_)};
  found.storage = zip_.record("data/" + storage[2].as_string());
  const auto bytes = found.storage.bytes;
  const int64_t offset = arguments[1].as_int();
  const auto elements = static_cast<int64_t>(bytes.size() / c10::elementSize(found.dtype));
  TI_CHECK(found.strides.size() == found.shape.size(), "{}: a tensor has {} sizes, but {} strides. {}", what_,
           found.shape.size(), found.strides.size(), kRemedy);
  const auto needed = reach(found.shape, found.strides);
  TI_CHECK(offset >= 0 && offset <= elements && needed && *needed <= elements - offset,
           "{}: a tensor of shape [{}] reaches beyond its {} stored elements. {}", what_, fmt::join(found.shape, ", "),
           elements, kRemedy);
  found.data = bytes.data() + offset * static_cast<int64_t>(c10::elementSize(found.dtype));
  return found;
}

TorchTensorArchive::TorchTensorArchive(Dtype dtype, const Shape& shape) {
  data_size_ = static_cast<uint64_t>(volume(shape)) * c10::elementSize(dtype);
  add_torch_pickle(zip_, write_pickle(torch_tensor_value(dtype, shape, "0")));
  head_ = zip_.begin("data/0", data_size_, kAlignment);
}

std::string TorchTensorArchive::tail(uint32_t crc) {
  zip_.end(crc);
  return zip_.finish();
}

std::string torch_archive_of(const PickleValue& value) {
  ZipBuilder zip;
  add_torch_pickle(zip, write_pickle(value));
  return zip.finish();
}

}  // namespace titanium::checkpoint
