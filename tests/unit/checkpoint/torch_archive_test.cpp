// Archives of torch.save in memory: what we write is read, damage is refused. That torch agrees is in parity/dcp.py.
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <zlib.h>

#include <array>
#include <cstring>
#include <fstream>
#include <random>

#include "tests/support/test_folder.h"
#include "titanium/base/error.h"
#include "titanium/checkpoint/io/crc32.h"
#include "titanium/checkpoint/io/mapped_file.h"
#include "titanium/checkpoint/torch_file/archive.h"
#include "titanium/checkpoint/torch_file/pickle_writer.h"

namespace titanium::checkpoint {
namespace {

std::span<const std::byte> bytes_of(const std::string& text) { return std::as_bytes(std::span(text)); }

std::string archive_of(const Tensor& tensor) {
  TorchTensorArchive archive(tensor.scalar_type(), tensor.sizes().vec());
  const std::string data(static_cast<const char*>(tensor.const_data_ptr()), tensor.nbytes());
  return archive.head() + data + archive.tail(crc32(bytes_of(data)));
}

// An archive whose pickle is that of a tensor of 4 floats in storage "0", with these arguments.
std::string archive_with(int64_t offset, const Shape& shape, const Shape& strides, std::string_view storage = "0") {
  const auto tuple = [](const Shape& values) { return PickleValue::tuple({values.begin(), values.end()}); };
  const PickleValue id =
      PickleValue::tuple({"storage", PickleValue::global("torch", "FloatStorage"), storage, "cpu", 4});
  ZipBuilder zip;
  zip.add("data.pkl",
          write_pickle(PickleValue::call("torch._utils", "_rebuild_tensor_v2",
                                         {PickleValue::persistent_id(id), offset, tuple(shape), tuple(strides), false,
                                          PickleValue::call("collections", "OrderedDict", {})})));
  zip.add("data/0", std::string(16, '\0'));
  return zip.finish();
}

// What torch.save wrote of a tensor of 4 floats in storage "12" before there were archives.
std::string former_file(bool little_endian = true, std::string_view key = "12", uint64_t elements = 4) {
  const PickleValue id =
      PickleValue::tuple({"storage", PickleValue::global("torch", "FloatStorage"), "12", "cpu", 4, PickleValue()});
  std::string file("\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15);
  file += write_pickle(1001) + write_pickle(PickleValue::dict({{"little_endian", little_endian}}));
  file += write_pickle(
      PickleValue::call("torch._utils", "_rebuild_tensor_v2",
                        {PickleValue::persistent_id(id), 0, PickleValue::tuple({2, 2}), PickleValue::tuple({2, 1}),
                         false, PickleValue::call("collections", "OrderedDict", {})}));
  file += write_pickle(PickleValue::list({key}));
  file.append(reinterpret_cast<const char*>(&elements), sizeof(elements));
  return file + std::string(16, 'x');
}

std::string refusal(const std::string& archive) {
  try {
    const TorchArchive read(bytes_of(archive), "test");
    read.tensor(read.value());
    read.verify();
    return "accepted";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Crc32, AgreesWithZlibForAllLengthsAndPieces) {
  std::string data(5000, '\0');
  std::mt19937 random(1);
  for (char& c : data) c = static_cast<char>(random());
  for (size_t length = 0; length < data.size(); length += 1 + length / 8) {
    const size_t cut = length / 3;
    const auto expected = ::crc32_z(0, reinterpret_cast<const Bytef*>(data.data()) + 1, length);
    const auto bytes = bytes_of(data).subspan(1, length);
    EXPECT_EQ(crc32(bytes), expected) << length;
    EXPECT_EQ(crc32(bytes.subspan(cut), crc32(bytes.first(cut))), expected) << length;
  }
}

TEST(TorchArchive, TensorsAreAlignedAndReadAgain) {
  for (const Dtype dtype : {at::kFloat, at::kBFloat16, at::kLong, at::kUInt16, at::kFloat8_e4m3fn}) {
    const Tensor tensor = at::arange(24, at::kFloat).to(dtype).reshape({2, 3, 4});
    const std::string archive = archive_of(tensor);
    const TorchArchive read(bytes_of(archive), "test");
    const StoredTensor stored = read.tensor(read.value());
    EXPECT_EQ(stored.dtype, dtype);
    EXPECT_EQ(stored.shape, Shape({2, 3, 4}));
    EXPECT_EQ(stored.strides, Shape({12, 4, 1}));
    EXPECT_EQ((stored.data - bytes_of(archive).data()) % 64, 0);
    EXPECT_EQ(std::memcmp(stored.data, tensor.const_data_ptr(), tensor.nbytes()), 0);
    read.verify();
  }
  const std::string empty = archive_of(at::empty({0, 3}));
  const TorchArchive read(bytes_of(empty), "test");
  EXPECT_EQ(read.tensor(read.value()).shape, Shape({0, 3}));
}

TEST(TorchArchive, ValuesWithoutTensorsAreReadAgain) {
  const std::string archive = torch_archive_of(PickleValue::dict({{"step", 5}}));
  const TorchArchive read(bytes_of(archive), "test");
  EXPECT_EQ(read.value().at("step").as_int(), 5);
  EXPECT_THROW(read.tensor(read.value()), Error);
}

TEST(TorchArchive, TensorsBeyondFourGigabytesAreReadAgain) {
  // The bytes in the middle are a hole in the file.
  const auto path = test::test_folder() / "large";
  const int64_t size = (int64_t{1} << 32) + 7;
  TorchTensorArchive archive(at::kByte, {size});
  std::ofstream file(path, std::ios::binary);
  file << archive.head();
  file.seekp(size - 1, std::ios::cur);
  file << 'x' << archive.tail(0);
  file.close();
  const MappedFile mapped(path, "test");
  const TorchArchive read(mapped.bytes(), "test");
  const StoredTensor stored = read.tensor(read.value());
  EXPECT_EQ(stored.shape, Shape({size}));
  EXPECT_EQ(stored.data[0], std::byte{0});
  EXPECT_EQ(stored.data[size - 1], std::byte{'x'});
  std::filesystem::remove(path);
}

TEST(TorchArchive, TensorsThatReachBeyondTheirStorageAreRefused) {
  EXPECT_EQ(refusal(archive_with(0, {2, 2}, {2, 1})), "accepted");
  EXPECT_EQ(refusal(archive_with(0, {2, 2}, {1, 2})), "accepted");
  EXPECT_EQ(refusal(archive_with(4, {0, 7}, {7, 1})), "accepted");
  constexpr int64_t kHuge = int64_t{1} << 62;
  EXPECT_NE(refusal(archive_with(1, {2, 2}, {2, 1})).find("reaches beyond its 4 stored elements"), std::string::npos);
  EXPECT_NE(refusal(archive_with(-1, {1}, {1})).find("reaches beyond"), std::string::npos);
  EXPECT_NE(refusal(archive_with(kHuge, {1}, {1})).find("reaches beyond"), std::string::npos);
  EXPECT_NE(refusal(archive_with(0, {kHuge, 4}, {4, 1})).find("reaches beyond"), std::string::npos);
  EXPECT_NE(refusal(archive_with(0, {3, 3}, {kHuge, kHuge})).find("reaches beyond"), std::string::npos);
  EXPECT_NE(refusal(archive_with(0, {2}, {-1})).find("a size or stride of -1"), std::string::npos);
  EXPECT_NE(refusal(archive_with(0, {2, 2}, {1})).find("2 sizes, but 1 strides"), std::string::npos);
  EXPECT_NE(refusal(archive_with(0, {2}, {1}, "7")).find("no record \"data/7\""), std::string::npos);
}

TEST(TorchArchive, EveryTruncationIsRefused) {
  const std::string archive = archive_of(at::arange(6, at::kFloat));
  for (size_t length = 0; length < archive.size(); ++length) {
    EXPECT_NE(refusal(archive.substr(0, length)), "accepted") << length;
  }
  EXPECT_EQ(refusal(archive), "accepted");
}

TEST(TorchArchive, FilesFromBeforeArchivesAreReadAndTheirDamageIsRefused) {
  const std::string file = former_file();
  const TorchArchive read(bytes_of(file), "test");
  const StoredTensor stored = read.tensor(read.value());
  EXPECT_EQ(stored.shape, Shape({2, 2}));
  EXPECT_EQ(stored.data, bytes_of(file).data() + file.size() - 16);
  EXPECT_FALSE(read.has_checksums());
  for (size_t length = 0; length < file.size(); ++length) {
    EXPECT_NE(refusal(file.substr(0, length)), "accepted") << length;
  }
  EXPECT_NE(refusal(file + "x").find("1 bytes follow the last storage"), std::string::npos);
  EXPECT_NE(refusal(former_file(false)).find("not written on a little-endian machine"), std::string::npos);
  EXPECT_NE(refusal(former_file(true, "13")).find("storage \"13\" belongs to no tensor"), std::string::npos);
  EXPECT_NE(refusal(former_file(true, "12", uint64_t{1} << 63)).find("a storage has"), std::string::npos);
  EXPECT_NE(refusal(former_file(true, "12", 5)).find("a storage of 20 bytes is announced, but 16 follow"),
            std::string::npos);
}

TEST(TorchArchive, FlippedBitsOfATensorAreFoundByItsChecksum) {
  std::string archive = archive_of(at::arange(600, at::kFloat));
  const std::string head = TorchTensorArchive(at::kFloat, {600}).head();
  archive[head.size() + 1000] ^= 4;
  EXPECT_NE(refusal(archive).find("record \"data/0\" have changed"), std::string::npos);
}

TEST(TorchArchiveFuzz, DamagedArchivesGiveAnErrorOrATensorInside) {
  const std::array good = {archive_of(at::arange(6, at::kFloat)), former_file()};
  std::mt19937 random(1);
  int accepted = 0, refused = 0;
  for (size_t round = 0; round < 30'000; ++round) {
    std::string archive = good[round % good.size()];
    for (size_t changes = 1 + random() % 3; changes > 0; --changes) {
      archive[random() % archive.size()] = static_cast<char>(random() % 2 == 0 ? random() : 0xff);
    }
    try {
      const TorchArchive read(bytes_of(archive), "test");
      const StoredTensor stored = read.tensor(read.value());
      int64_t last = 0;
      for (size_t dim = 0; dim < stored.shape.size(); ++dim) last += (stored.shape[dim] - 1) * stored.strides[dim];
      const std::byte* end = stored.data + (last + 1) * static_cast<int64_t>(c10::elementSize(stored.dtype));
      EXPECT_TRUE(stored.data >= bytes_of(archive).data() && end <= bytes_of(archive).data() + archive.size());
      ++accepted;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(accepted, 0);
  EXPECT_GT(refused, 0);
}

}  // namespace
}  // namespace titanium::checkpoint
