#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>

#include <fstream>

#include "tests/support/fuzz.h"
#include "tests/support/tensors.h"
#include "tests/support/test_folder.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/checkpoint/tensor_stats.h"
#include "titanium/checkpoint/torch_file/writer.h"
#include "titanium/models/convert_weights.h"

namespace titanium::models {
namespace {

namespace fs = std::filesystem;
using checkpoint::PickleValue;
using checkpoint::TorchFileItem;

std::span<const std::byte> bytes_of(const Tensor& tensor) {
  return {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()};
}

// Nested, with tensors of several dtypes, a list, and values.
std::map<std::string, Tensor> write_sample(const fs::path& path) {
  const std::map<std::string, Tensor> tensors = {{"model.w", test::random_tensor({7, 5})},
                                                 {"model.half", test::random_tensor({3, 4}, at::kBFloat16)},
                                                 {"list.0", at::ones({2}, at::kLong)},
                                                 {"list.1", at::ones({0, 2})},
                                                 {"optimizer.state.w.step", at::ones({})}};
  std::vector<TorchFileItem> items;
  const auto tensor = [&](checkpoint::DcpPath path, const std::string& name) {
    items.push_back({path, TorchFileItem::TensorKind{tensors.at(name).scalar_type(), tensors.at(name).sizes().vec()}});
  };
  tensor({"list", int64_t{0}}, "list.0");
  tensor({"list", int64_t{1}}, "list.1");
  tensor({"model", "half"}, "model.half");
  tensor({"model", "w"}, "model.w");
  tensor({"optimizer", "state", "w", "step"}, "optimizer.state.w.step");
  items.push_back({{"step"}, PickleValue(17)});
  items.push_back({{"note"}, PickleValue::tuple({"text", 2.5, true, PickleValue()})});
  checkpoint::TorchFileWriter writer(path, items);
  for (const auto& [name, tensor] : tensors) writer.write(bytes_of(tensor));
  writer.publish();
  return tensors;
}

void read_everything(const checkpoint::WeightsSource& source) {
  for (const auto& [name, tensor] : source.tensors()) {
    source.read(name, {Shape(tensor.shape.size(), 0), tensor.shape}, at::empty(tensor.shape, tensor.dtype));
    checkpoint::stats_of(source, name);
  }
  for (const std::string& name : source.values()) source.value(name).repr();
}

TEST(Convert, EverythingComesThroughAllFormatsAndBack) {
  const fs::path folder = test::test_folder();
  const auto tensors = write_sample(folder / "first.pt");
  const auto convert = [&](const char* from, const char* to, WeightsFormat format) {
    convert_weights(*checkpoint::open_weights(folder / from), folder / to, {.to = format});
  };
  convert("first.pt", "dcp", WeightsFormat::kDcp);
  convert("dcp", "second.pt", WeightsFormat::kTorch);
  for (const char* name : {"first.pt", "dcp", "second.pt"}) {
    const auto source = checkpoint::open_weights(folder / name);
    ASSERT_EQ(source->tensors().size(), tensors.size());
    for (const auto& [name, expected] : tensors) {
      const checkpoint::SourceTensor& tensor = source->tensor(name);
      const Tensor found = at::empty(tensor.shape, tensor.dtype);
      source->read(name, {Shape(tensor.shape.size(), 0), tensor.shape}, found);
      EXPECT_TRUE(found.equal(expected)) << name;
    }
    EXPECT_EQ(source->value("step"), PickleValue(17));
    EXPECT_EQ(source->value("note").repr(), "('text', 2.5, True, None)");
    EXPECT_TRUE(source->verify().damage.empty());
  }
}

TEST(Convert, EntriesInsideATensorAreRefused) {
  const std::vector<TorchFileItem> items = {{{"a"}, PickleValue(1)}, {{"a", "b"}, PickleValue(2)}};
  EXPECT_THROW(checkpoint::TorchFileWriter(test::test_folder() / "x.pt", items), Error);
}

// Truncations, flipped bits, and runs of bytes that are overwritten or moved.
std::string damage(std::string bytes, std::mt19937_64& random) {
  const auto place = [&] { return random() % bytes.size(); };
  for (uint32_t times = 1 + random() % 4; times > 0; --times) {
    switch (random() % 4) {
      case 0:
        bytes.resize(place() + 1);
        break;
      case 1:
        bytes[place()] ^= static_cast<char>(1 << random() % 8);
        break;
      case 2:
        bytes[place()] = std::array<char, 5>{'\0', '\x7f', '\xff', '.', '\x80'}[random() % 5];
        break;
      default:
        const size_t from = place(), to = place(),
                     count = std::min({bytes.size() - from, bytes.size() - to, size_t{16}});
        bytes.replace(to, count, bytes.substr(from, count));
    }
  }
  return bytes;
}

TEST(ConvertFuzz, DamagedFilesOfTorchSaveGiveAnErrorOrAConsistentResult) {
  const fs::path folder = test::test_folder(), file = folder / "damaged.pt";
  write_sample(folder / "good.pt");
  const std::string good = read_file(folder / "good.pt", "file");
  int rounds = 0, refused = 0;
  test::fuzz(200, [&](std::mt19937_64& random) {
    ++rounds;
    std::ofstream(file, std::ios::binary | std::ios::trunc) << damage(good, random);
    try {
      const auto source = checkpoint::open_torch_file(file);
      read_everything(*source);
      convert_weights(*source, folder / "out.pt", {.to = WeightsFormat::kTorch, .replace = true});
    } catch (const Error&) {
      ++refused;
    }
  });
  EXPECT_GT(refused, rounds / 10);
}

}  // namespace
}  // namespace titanium::models
