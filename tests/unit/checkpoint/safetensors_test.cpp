#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "tests/support/test_folder.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/checkpoint/safetensors/reader.h"
#include "titanium/checkpoint/safetensors/writer.h"

namespace titanium::checkpoint {
namespace {

namespace fs = std::filesystem;

using test::test_folder;

std::string file_of(std::string_view header, std::string_view data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + std::string(header) + std::string(data);
}

// The sentence with which opening a file of this content fails; the file's name in it is "FILE".
std::string complaint(const std::string& content) {
  const fs::path path = test_folder() / "x.safetensors";
  write_file_atomically(path, content);
  try {
    const SafetensorsReader reader(path);
  } catch (const Error& error) {
    std::string text = error.what();
    const size_t at = text.find(path.string());
    return at == std::string::npos ? text : text.replace(at, path.string().size(), "FILE");
  }
  return "no error";
}

std::string complaint(std::string_view header, std::string_view data) { return complaint(file_of(header, data)); }

constexpr std::string_view kRemedy = " The file is damaged or incomplete: fetch or write it again.";

TEST(Safetensors, WhatIsWrittenReadsBackBitEqualInEveryDtype) {
  const fs::path path = test_folder() / "deep" / "model.safetensors";
  const Tensor values = at::arange(24, at::kFloat).reshape({2, 3, 4});
  std::vector<NamedTensor> tensors;
  for (const Dtype dtype : {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort,
                            at::kChar, at::kByte, at::kBool, at::kFloat8_e4m3fn}) {
    tensors.push_back({std::string(c10::toString(dtype)), values.to(dtype)});
  }
  tensors.push_back({"scalar", at::tensor(2.5F)});
  tensors.push_back({"empty", at::empty({0, 7}, at::kBFloat16)});
  tensors.push_back({"transposed \"\u00fc\"", values.transpose(0, 2)});
  write_safetensors(path, tensors);
  const SafetensorsReader reader(path);
  EXPECT_EQ(reader.names().size(), tensors.size());
  EXPECT_EQ(reader.metadata().at("format"), "pt");
  for (const auto& [name, tensor] : tensors) {
    const Tensor read = reader.tensor(name);
    EXPECT_EQ(read.scalar_type(), tensor.scalar_type()) << name;
    ASSERT_EQ(read.sizes(), tensor.sizes()) << name;
    EXPECT_TRUE(read.to(at::kDouble).equal(tensor.to(at::kDouble))) << name;
  }
  EXPECT_EQ(std::distance(fs::directory_iterator(path.parent_path()), {}), 1) << "a temporary file is left";
}

TEST(Safetensors, TensorsOutliveTheReaderAndWritingToThemLeavesTheFileAlone) {
  const fs::path path = test_folder() / "a.safetensors";
  write_safetensors(path, std::vector<NamedTensor>{{"a", at::ones({1000})}});
  Tensor tensor = SafetensorsReader(path).tensor("a");
  EXPECT_EQ(tensor.sum().item<float>(), 1000.0F);
  tensor.zero_();
  EXPECT_EQ(SafetensorsReader(path).tensor("a").sum().item<float>(), 1000.0F);
}

TEST(Safetensors, ReadingConvertsTheDtype) {
  const fs::path path = test_folder() / "a.safetensors";
  write_safetensors(path, std::vector<NamedTensor>{{"weight", at::arange(6, at::kBFloat16).reshape({2, 3})}});
  const SafetensorsReader reader(path);
  const Tensor destination = at::zeros({2, 3}).requires_grad_(true);
  reader.read_box("weight", whole_box({2, 3}), destination);
  EXPECT_EQ(destination.sum().item<float>(), 15.0F);
}

TEST(Safetensors, MisalignedTensorsAreReadByCopy) {
  const std::string header = R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                             R"("b":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})";
  const fs::path path = test_folder() / "a.safetensors";
  const float value = 1.5F;
  write_file_atomically(path, file_of(header, "x" + std::string(reinterpret_cast<const char*>(&value), 4)));
  EXPECT_EQ(SafetensorsReader(path).tensor("b").item<float>(), value);
}

TEST(Safetensors, UnknownNameSuggestsTheNearest) {
  const fs::path path = test_folder() / "a.safetensors";
  write_safetensors(path, std::vector<NamedTensor>{{"lm_head.weight", at::ones({1})}});
  try {
    SafetensorsReader(path).tensor("lm_haed.weight");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), path.string() +
                                             " has no tensor \"lm_haed.weight\" (the nearest is "
                                             "\"lm_head.weight\"). Check that the weights are of this "
                                             "model.");
  }
}

TEST(Safetensors, HeaderLengthMustFitTheFile) {
  EXPECT_EQ(complaint("abc"), fmt::format("FILE: 3 bytes are too few for a safetensors file.{}", kRemedy));
  EXPECT_EQ(complaint(std::string(8, '\xff') + "{}"),
            "FILE: a header of 18446744073709551615 bytes is announced, but 2 bytes follow and 100000000 is the limit. "
            "Check that it is a safetensors file; if so, it is damaged or incomplete: fetch or write it again.");
}

TEST(Safetensors, HeaderMustBeOneJsonObjectWithoutRepeatedKeys) {
  EXPECT_NE(complaint("{\"a\":", "").find("FILE: the header is not valid JSON ("), std::string::npos);
  EXPECT_NE(complaint("{\"\xff\":1}", "").find("FILE: the header is not valid JSON ("), std::string::npos);
  EXPECT_EQ(complaint("[]", ""), fmt::format("FILE: the header is not a JSON object.{}", kRemedy));
  EXPECT_EQ(complaint(R"({"a":1,"a":2})", ""), fmt::format("FILE: the header has the key \"a\" twice.{}", kRemedy));
  EXPECT_EQ(complaint(R"({"a":{"dtype":"F32","dtype":"F32"}})", ""),
            fmt::format("FILE: the header has the key \"dtype\" twice.{}", kRemedy));
  EXPECT_EQ(complaint(std::string(100'000, '['), ""),
            fmt::format("FILE: the header nests deeper than 3 arrays and objects.{}", kRemedy));
  EXPECT_EQ(complaint(R"({"__metadata__":{"a":1}})", ""),
            fmt::format("FILE: __metadata__ has a value for \"a\" that is not a string.{}", kRemedy));
  EXPECT_EQ(complaint(R"({"__metadata__":[]})", ""),
            fmt::format("FILE: __metadata__ is not an object of strings.{}", kRemedy));
}

TEST(Safetensors, EntriesMustBeComplete) {
  EXPECT_EQ(complaint(R"({"a":{"dtype":"F32","shape":[1]}})", "1234"),
            fmt::format("FILE: tensor \"a\" is not an object with dtype, shape and data_offsets.{}", kRemedy));
  EXPECT_EQ(complaint(R"({"a":{"dtype":"F4","shape":[1],"data_offsets":[0,4]}})", "1234"),
            "FILE: tensor \"a\": dtype \"F4\" is unknown. Convert the tensor to one of F64, F32, F16, BF16, F8_E4M3, "
            "F8_E5M2, I64, I32, I16, I8, U64, U32, U16, U8, BOOL.");
  EXPECT_EQ(complaint(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "1234"),
            fmt::format("FILE: tensor \"a\": the shape has -1, which is not a size.{}", kRemedy));
  EXPECT_EQ(complaint(R"({"a":{"dtype":"F32","shape":1,"data_offsets":[0,4]}})", "1234"),
            fmt::format("FILE: tensor \"a\": the shape is not a list of at most 64 sizes.{}", kRemedy));
  EXPECT_EQ(complaint(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4.5]}})", "1234"),
            fmt::format("FILE: tensor \"a\": data_offsets is not a pair of positions.{}", kRemedy));
}

TEST(Safetensors, SizesAndOffsetsMustAgree) {
  EXPECT_EQ(complaint(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})", "1234"),
            fmt::format("FILE: tensor \"a\": bytes 0 to 8 do not lie within the 4 bytes of data.{}", kRemedy));
  EXPECT_EQ(complaint(R"({"a":{"dtype":"BF16","shape":[3],"data_offsets":[0,4]}})", "1234"),
            fmt::format("FILE: tensor \"a\": 4 bytes, but shape [3] of BF16 needs 6.{}", kRemedy));
  EXPECT_EQ(complaint(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}})", "1234"),
            fmt::format("FILE: tensor \"a\": shape [4611686018427387904, 4] is larger than any memory.{}", kRemedy));
  EXPECT_EQ(complaint(R"({"a":{"dtype":"F32","shape":[0,4611686018427387904,4],"data_offsets":[0,0]}})", ""),
            fmt::format("FILE: tensor \"a\": shape [0, 4611686018427387904, 4] is larger than any memory.{}", kRemedy));
}

TEST(Safetensors, TensorsMustCoverTheDataOnce) {
  EXPECT_EQ(complaint(R"({"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},)"
                      R"("b":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}})",
                      "1234"),
            fmt::format("FILE: tensor \"b\" begins at byte 2, inside the tensor before it.{}", kRemedy));
  EXPECT_EQ(complaint(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                      R"("b":{"dtype":"U8","shape":[1],"data_offsets":[3,4]}})",
                      "1234"),
            fmt::format("FILE: bytes 1 to 3, before tensor \"b\", belong to no tensor.{}", kRemedy));
  EXPECT_EQ(complaint(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "1234"),
            fmt::format("FILE: the last 3 bytes belong to no tensor.{}", kRemedy));
}

std::string folder_complaint(const fs::path& folder) {
  try {
    const SafetensorsReader reader(folder);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(SafetensorsFolder, ShardsAreReadThroughTheIndex) {
  const fs::path folder = test_folder();
  write_safetensors(folder / "model-1.safetensors", std::vector<NamedTensor>{{"a", at::ones({2})}});
  write_safetensors(folder / "model-2.safetensors",
                    std::vector<NamedTensor>{{"b", at::ones({3})}, {"c", at::ones({4})}});
  write_file_atomically(folder / "model.safetensors.index.json",
                        R"({"metadata":{"total_size":36},"weight_map":{"a":"model-1.safetensors",)"
                        R"("b":"model-2.safetensors","c":"model-2.safetensors"}})");
  const SafetensorsReader reader(folder);
  EXPECT_EQ(reader.names(), (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(reader.entry("c").shape, Shape{4});
  EXPECT_EQ(reader.tensor("b").sum().item<float>(), 3.0F);
}

TEST(SafetensorsFolder, EveryFlawOfTheIndexHasASentence) {
  const fs::path folder = test_folder();
  const fs::path index = folder / "model.safetensors.index.json";
  EXPECT_EQ(folder_complaint(folder),
            folder.string().insert(0, "folder ") +
                " has neither model.safetensors nor model.safetensors.index.json. Name a folder with Hugging Face "
                "weights, or a safetensors file.");
  write_file_atomically(index, "{");
  EXPECT_NE(folder_complaint(folder).find(index.string() + " is not valid JSON ("), std::string::npos);
  write_file_atomically(index, R"({"weight_map":[]})");
  EXPECT_EQ(folder_complaint(folder),
            index.string() + " has no object \"weight_map\" from tensor names to files. Fetch or write it again.");
  write_file_atomically(index, R"({"weight_map":{}})");
  EXPECT_EQ(folder_complaint(folder), index.string() + " names no tensors. Fetch or write it again.");
  write_file_atomically(index, R"({"weight_map":{"a":"../secret"}})");
  EXPECT_EQ(folder_complaint(folder), index.string() +
                                          ": tensor \"a\" lies in \"../secret\", which is not the name of "
                                          "a file beside the index. Correct the index.");
  write_file_atomically(index, R"({"weight_map":{"a":"m.safetensors"}})");
  EXPECT_EQ(folder_complaint(folder),
            index.string() + " names the file m.safetensors, which is not beside it. Fetch the missing file.");
  write_safetensors(folder / "m.safetensors", std::vector<NamedTensor>{{"b", at::ones({1})}});
  EXPECT_EQ(folder_complaint(folder), index.string() +
                                          " says that tensor \"a\" lies in m.safetensors, but it does "
                                          "not. Index and file do not belong together: fetch both again.");
}

TEST(SafetensorsWriter, RefusesWhatAFileCannotHoldAndLeavesNothing) {
  const fs::path folder = test_folder();
  const auto write = [&](const std::vector<NamedTensor>& tensors) { write_safetensors(folder / "x", tensors); };
  EXPECT_THROW(write({{"a", at::ones({1})}, {"a", at::ones({1})}}), Error);
  EXPECT_THROW(write({{"__metadata__", at::ones({1})}}), Error);
  EXPECT_THROW(write({{"\xff", at::ones({1})}}), Error);
  EXPECT_THROW(write({{"a", at::ones({1}, at::kComplexFloat)}}), Error);
  EXPECT_TRUE(fs::is_empty(folder));
}

}  // namespace
}  // namespace titanium::checkpoint
