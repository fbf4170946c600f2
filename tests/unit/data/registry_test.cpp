#include "tests/support/data_files.h"
#include "tests/support/source_folder.h"
#include "titanium/data/dataset_registry.h"
#include "titanium/data/fetchable.h"

namespace titanium::data::testing {
namespace {

std::string usage_error(const std::string& name, const std::optional<std::string>& path = std::nullopt) {
  try {
    find_dataset(name, path);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "";
}

TEST(DatasetRegistry, NamesAreLowerCasedAndHaveTheirPlaces) {
  EXPECT_EQ(find_dataset("C4_Test", std::nullopt).name, "c4_test");
  EXPECT_EQ(find_dataset("c4_test", std::nullopt).path, "./tests/assets/c4_test");
  EXPECT_EQ(find_dataset("c4_test_validation", std::nullopt).path, "./tests/assets/c4_test_validation");
}

TEST(DatasetRegistry, PathOverridesTheRegisteredPlace) {
  EXPECT_EQ(find_dataset("c4", "/data/c4").path, "/data/c4");
  EXPECT_EQ(find_dataset("c4_test", "x.jsonl").path, "x.jsonl");
  EXPECT_EQ(find_dataset("my_texts", "x.jsonl").name, "my_texts");
}

TEST(DatasetRegistry, UnknownNameListsTheSupportedOnes) {
  EXPECT_EQ(usage_error("c5"),
            "Dataset c5 is not supported. Supported datasets are: c4, c4_test, c4_test_validation, c4_validation, "
            "cc12m-wds, cc12m-test, coco-validation, coco-test, dclm, fineweb-edu, dolma, zyda, the-stack-v2, "
            "finemath. To read files "
            "of your own, set dataset_path.");
}

TEST(DatasetRegistry, WithoutAPathTheHubsFilesAreRead) {
  const Dataset texts = find_dataset("C4", std::nullopt);
  EXPECT_EQ(texts.path, "hf://datasets/allenai/c4/en/c4-train.*");
  EXPECT_TRUE(texts.at_hub);
  EXPECT_FALSE(find_dataset("c4", "/data/c4").at_hub);
  EXPECT_FALSE(find_dataset("c4_test", std::nullopt).at_hub);
  EXPECT_EQ(find_dataset("cc12m-wds", std::nullopt, DatasetKind::kImages).path,
            "hf://datasets/pixparse/cc12m-wds/*.tar");
  for (const char* name : {"c4_validation", "dclm", "fineweb-edu", "zyda", "finemath"})
    EXPECT_TRUE(find_dataset(name, std::nullopt).at_hub) << name;
}

TEST(DatasetRegistry, WhatTheHubHasInAnotherFormNamesTheCommandThatFetchesIt) {
  EXPECT_EQ(usage_error("dolma"),
            "Dataset dolma is not on this machine. Fetch it, or as many of its files as you need, with: titanium "
            "download allenai/dolma --repo-type dataset --include '*.json.gz' --local-dir data/dolma; then set "
            "dataset_path = \"data/dolma\".");
  EXPECT_TRUE(names_download(usage_error("the-stack-v2")));
  EXPECT_EQ(error_of([] { find_dataset("coco-validation", std::nullopt, DatasetKind::kImages); }),
            "Dataset coco-validation is not on this machine. Fetch it with: titanium download howard-hou/COCO-Text "
            "--repo-type dataset --include '*validation-*.parquet' --local-dir data/coco; and pack its pictures and "
            "captions with: tools/pack_pictures.py data/coco data/coco-validation, then set dataset_path = "
            "\"data/coco-validation\".");
}

TEST(DatasetRegistry, KindsOfDataAreToldApart) {
  for (const char* name : {"cc12m-wds", "cc12m-test", "coco-validation"})
    EXPECT_EQ(usage_error(name, "/data"),
              fmt::format("Dataset {} holds images, and texts are read here. Use a text dataset.", name));
  EXPECT_EQ(error_of([] { find_dataset("c4_test", std::nullopt, DatasetKind::kImages); }),
            "Dataset c4_test holds texts, and images with captions are read here. Use cc12m-wds, or another name and "
            "dataset_path for archives of your own.");
  EXPECT_EQ(find_dataset("cc12m-test", std::nullopt, DatasetKind::kImages).path, "./tests/assets/cc12m_test");
  EXPECT_EQ(find_dataset("mine", "/data", DatasetKind::kImages).path, "/data");
}

TEST(DatasetRegistry, BundledSetsAreReadWhole) {
  for (const auto& [name, records, bytes] :
       {std::tuple{"c4_test", 2000, 2'500'000}, {"c4_test_validation", 130, 150'000}}) {
    const auto dataset = find_dataset(name, std::nullopt);
    int64_t characters = 0;
    Loader loader({.name = dataset.name, .path = source_folder() / dataset.path, .streams = 1}, encode_bytes,
                  {.batch = 1, .packing = {.seq_len = 4096, .infinite = false, .keep_remainder = true}});
    int64_t documents = 0;
    while (const auto batch = loader.next()) {
      for (const int64_t token : batch->inputs) characters += token > 0 && token < 256 ? 1 : 0;
      documents += std::count(batch->inputs.begin(), batch->inputs.end(), 256);
    }
    EXPECT_GE(documents, records * 9 / 10) << name;
    EXPECT_GE(characters, bytes) << name;
  }
}

}  // namespace
}  // namespace titanium::data::testing
