#include "titanium/checkpoint/torch_file/former_file.h"

#include <array>
#include <cstring>

#include "titanium/base/error.h"
#include "titanium/base/text/printable.h"
#include "titanium/checkpoint/torch_file/dtype.h"
#include "titanium/checkpoint/torch_file/pickle_reader.h"

namespace titanium::checkpoint {
namespace {

using Kind = PickleValue::Kind;

constexpr std::string_view kRemedy = "The file is damaged or of another format: fetch or write it again.";
// The pickle of 0x1950a86a20f9469cfc6c, which is beyond 64 bits.
constexpr std::array<unsigned char, 15> kMagic = {0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46,
                                                  0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, '.'};

// The bytes of an element of each storage that the value refers to, by its key.
void find_storages(const PickleValue& value, std::map<std::string, uint64_t>& found, const std::string& what) {
  switch (value.kind()) {
    case Kind::kPersistentId: {
      const PickleValue& id = value.items()[0];
      const bool is_storage = id.kind() == Kind::kTuple && id.items().size() == 6;
      TI_CHECK(is_storage && id.items()[5].is_none(), "{}: a tensor has no storage of its own. {}", what, kRemedy);
      const TorchDtype* dtype = find_torch_storage(id.items()[1].type_name());
      found[id.items()[2].as_string()] = dtype == nullptr ? 1 : c10::elementSize(dtype->dtype);
      return;
    }
    case Kind::kObject:
      find_storages(value.state(), found, what);
      [[fallthrough]];
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
      for (const PickleValue& item : value.items()) find_storages(item, found, what);
      return;
    default:
      return;
  }
}

std::span<const std::byte> take(std::span<const std::byte>& rest, uint64_t size, const std::string& what) {
  TI_CHECK(size <= rest.size(), "{}: a storage of {} bytes is announced, but {} follow. {}", what, size, rest.size(),
           kRemedy);
  const auto taken = rest.first(size);
  rest = rest.subspan(size);
  return taken;
}

}  // namespace

bool is_former_torch_file(std::span<const std::byte> bytes) {
  return bytes.size() > kMagic.size() && std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) == 0;
}

ZipArchive::Records former_torch_records(std::span<const std::byte> bytes, const std::string& what) {
  auto rest = bytes.subspan(kMagic.size());
  read_first_pickle(rest, what);  // the version, which has always been the same
  const PickleValue machine = read_first_pickle(rest, what);
  const PickleValue* little = machine.kind() == Kind::kDict ? machine.find("little_endian") : nullptr;
  TI_CHECK(little != nullptr && *little == PickleValue(true),
           "{} was not written on a little-endian machine. Save it again on one.", what);
  const auto pickle = rest;
  std::map<std::string, uint64_t> storages;
  find_storages(read_first_pickle(rest, what), storages, what);
  ZipArchive::Records records;
  records["data.pkl"] = {.bytes = pickle.first(pickle.size() - rest.size())};
  const PickleValue keys = read_first_pickle(rest, what);
  for (const PickleValue& item : keys.items()) {
    const auto found = storages.find(item.as_string());
    TI_CHECK(found != storages.end(), "{}: storage \"{}\" belongs to no tensor. {}", what, printable(item.as_string()),
             kRemedy);
    uint64_t elements = 0, size = 0;
    std::memcpy(&elements, take(rest, sizeof(elements), what).data(), sizeof(elements));
    TI_CHECK(!__builtin_mul_overflow(elements, found->second, &size), "{}: a storage has {} elements. {}", what,
             elements, kRemedy);
    records["data/" + found->first] = {.bytes = take(rest, size, what)};
  }
  TI_CHECK(rest.empty(), "{}: {} bytes follow the last storage. {}", what, rest.size(), kRemedy);
  return records;
}

}  // namespace titanium::checkpoint
