#include "titanium/models/hugging_face_export.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <numeric>
#include <random>
#include <thread>

#include "tests/support/source_folder.h"
#include "tests/support/tensors.h"
#include "tests/support/test_folder.h"
#include "tests/support/threaded_ranks.h"
#include "tests/support/tiny_llama.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/checkpoint/safetensors/reader.h"
#include "titanium/checkpoint/safetensors/writer.h"
#include "titanium/comm/text_collectives.h"
#include "titanium/models/hugging_face_upload.h"
#include "titanium/models/llama3/model.h"
#include "titanium/models/model_weights.h"
#include "titanium/models/parallelize.h"
#include "titanium/models/registry.h"

namespace titanium::models {
namespace {

namespace fs = std::filesystem;
using llama3::Args;
using llama3::Llama3;

Args args_of(bool tied = false) {
  Args args = test::tiny_llama(16, /*kv_heads=*/2);
  args.vocab_size = 101;
  args.tied_embeddings = tied;
  return args;
}

std::unique_ptr<Llama3> random_model(const Args& args) {
  auto model = std::make_unique<Llama3>(args);
  model->materialize(at::kFloat, at::kCPU);
  model->init_weights(7);
  for (Parameter* parameter : model->parameters()) {
    parameter->value = parameter->value.detach() + 0.1 * test::random_tensor(parameter->global_shape);
  }
  return model;
}

void write_whole(const HuggingFaceExport& out, const fs::path& folder, const Model& model) {
  out.create_files(folder);
  for (const Parameter* parameter : model.parameters()) {
    out.write(folder, parameter->fqn, parameter->shard, parameter->value);
  }
  out.finish(folder);
}

std::map<std::string, std::string> contents(const fs::path& folder) {
  std::map<std::string, std::string> files;
  for (const auto& entry : fs::directory_iterator(folder)) {
    files[entry.path().filename().string()] = read_file(entry.path(), "file");
  }
  return files;
}

// Cuts at random places along random dims.
void cut(const Box& box, int depth, std::mt19937& random, std::vector<Box>& pieces) {
  const size_t dim = random() % box.shape.size();
  if (depth == 0 || box.shape[dim] < 2) return pieces.push_back(box);
  const int64_t at = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(box.shape[dim] - 1));
  Box first = box, second = box;
  first.shape[dim] = at;
  second.offset[dim] += at;
  second.shape[dim] -= at;
  cut(first, depth - 1, random, pieces);
  cut(second, depth - 1, random, pieces);
}

template <typename Function>
std::string error_of(const Function& function) {
  try {
    function();
    return "no error";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(HuggingFaceExport, AnyCutsWrittenByManyThreadsGiveTheBytesOfOneRank) {
  const auto model = random_model(args_of());
  const fs::path folder = test::test_folder();
  std::mt19937 random(3);
  for (const Dtype dtype : {at::kFloat, at::kBFloat16}) {
    const HuggingFaceExport out(*model, dtype, "", /*shard_bytes=*/40'000);
    const fs::path whole = folder / dtype_name(dtype);
    write_whole(out, whole, *model);
    const auto expected = contents(whole);
    EXPECT_GE(expected.size(), 4U);
    for (int round = 0; round < 4; ++round) {
      const fs::path place = folder / fmt::format("cut_{}_{}", dtype_name(dtype), round);
      out.create_files(place);
      std::array<std::vector<std::pair<const Parameter*, Box>>, 3> work;
      for (const Parameter* parameter : model->parameters()) {
        std::vector<Box> pieces;
        cut(parameter->shard, 4, random, pieces);
        for (const Box& piece : pieces) work[random() % work.size()].emplace_back(parameter, piece);
      }
      std::vector<std::thread> ranks;
      for (const auto& items : work) {
        ranks.emplace_back([&] {
          for (const auto& [parameter, piece] : items) {
            out.write(place, parameter->fqn, piece, box_of(parameter->value, piece));
          }
          out.finish(place);
        });
      }
      for (std::thread& rank : ranks) rank.join();
      EXPECT_TRUE(contents(place) == expected);
    }
  }
}

// Parameters in pieces, dealt to ranks at random.
std::vector<std::vector<checkpoint::DcpTensorItem>> dealt(const Model& model, size_t ranks, std::mt19937& random) {
  std::vector<std::vector<checkpoint::DcpTensorItem>> parts(ranks);
  for (const Parameter* parameter : model.parameters()) {
    std::vector<Box> pieces;
    cut(parameter->shard, 3, random, pieces);
    for (const Box& piece : pieces) {
      parts[random() % ranks].push_back(
          {parameter->fqn, parameter->global_shape, piece, box_of(parameter->value, piece)});
    }
  }
  return parts;
}

comm::GroupPtr all_ranks(comm::World& world) {
  std::vector<int> all(static_cast<size_t>(world.size()));
  std::iota(all.begin(), all.end(), 0);
  return world.host_group("checkpoint", all);
}

TEST(HuggingFaceUpload, RanksThatSendTheirPartsToTheWriterGiveTheSameFiles) {
  const auto model = random_model(args_of());
  const fs::path folder = test::test_folder();
  std::mt19937 random(4);
  for (const uint64_t shard_bytes : {40'000, 1'000'000}) {  // several files, and one
    const HuggingFaceExport out(*model, at::kBFloat16, source_folder() / "tests/assets/tokenizer", shard_bytes);
    const fs::path whole = folder / fmt::format("whole_{}", shard_bytes);
    write_whole(out, whole, *model);
    out.seal(whole);
    const auto expected = contents(whole);
    for (const int ranks : {1, 2, 5}) {
      for (const uint64_t range_bytes : {1, 3000, 1 << 20}) {  // of one row each, of several tensors, of whole files
        const fs::path place = folder / fmt::format("{}_{}_{}", shard_bytes, ranks, range_bytes);
        const auto parts = dealt(*model, static_cast<size_t>(ranks), random);
        test::run_ranks(ranks, [&](comm::World& world) {
          const auto group = all_ranks(world);
          HuggingFaceUpload upload(out, *group, place, range_bytes);
          const auto texts = comm::gather_texts(*group, upload.write(parts[static_cast<size_t>(world.rank())]));
          if (world.rank() != 0) return;
          for (const char* marker : {"model.safetensors", "model.safetensors.index.json"}) {
            EXPECT_FALSE(fs::exists(place / marker));
          }
          upload.complete(texts);
        });
        EXPECT_TRUE(contents(place) == expected) << place;
      }
    }
  }
}

TEST(HuggingFaceUpload, ARankThatFailsLetsTheOthersComeToTheEnd) {
  const auto model = random_model(args_of());
  const fs::path folder = test::test_folder() / "upload";
  write_file_atomically(folder, "a file in the way");
  const HuggingFaceExport out(*model, at::kBFloat16, "", 40'000);
  std::mt19937 random(5);
  auto parts = dealt(*model, 2, random);
  parts[1].pop_back();  // what nobody sends
  test::run_ranks(2, [&](comm::World& world) {
    const auto group = all_ranks(world);
    HuggingFaceUpload blocked(out, *group, folder);
    EXPECT_NE(error_of([&] { blocked.write(parts[static_cast<size_t>(world.rank())]); }).find("cannot be written"),
              std::string::npos);
    HuggingFaceUpload incomplete(out, *group, folder.string() + "_2");
    const std::string error = error_of([&] { incomplete.write(parts[static_cast<size_t>(world.rank())]); });
    if (world.rank() == static_cast<int>((out.file_count() - 1) % 2)) {
      EXPECT_NE(error.find("Another rank has failed."), std::string::npos) << error;
    }
  });
}

TEST(HuggingFaceExport, IsReadBackBitForBitOnEveryLayout) {
  const fs::path folder = test::test_folder();
  for (const bool tied : {false, true}) {
    const auto model = random_model(args_of(tied));
    write_whole(HuggingFaceExport(*model, at::kFloat, "", 50'000), folder, *model);
    EXPECT_EQ(checkpoint::SafetensorsReader(folder).contains("lm_head.weight"), !tied);
    JobConfig config;
    Args args = llama3::args_from_config_json(folder / "config.json");
    EXPECT_EQ(to_json(args, llama3::fields()), to_json(args_of(tied), llama3::fields()));
    for (const parallel::ParallelDims& dims : {parallel::ParallelDims{}, {.dp_shard = 3}, {.dp_shard = 5}}) {
      for (int rank = 0; rank < dims.world(); ++rank) {
        Llama3 loaded(args);
        place_parameters(loaded, config, dims, rank);
        loaded.materialize(at::kFloat, at::kCPU);
        load_hugging_face_weights(loaded, folder);
        const auto expected = model->parameters(), found = loaded.parameters();
        ASSERT_EQ(found.size(), expected.size());
        for (size_t i = 0; i < found.size(); ++i) {
          EXPECT_TRUE(found[i]->value.equal(box_of(expected[i]->value, found[i]->shard))) << found[i]->fqn;
        }
      }
    }
  }
}

TEST(HuggingFaceExport, RandomBoxesAreReadBackAtTheirPlace) {
  const auto model = random_model(args_of());
  const fs::path folder = test::test_folder();
  write_whole(HuggingFaceExport(*model, at::kFloat, ""), folder, *model);
  EXPECT_EQ(contents(folder).size(), 2U);  // one file of weights and config.json, no index
  const auto source = checkpoint::open_safetensors(folder);
  const ModelWeights weights(*model, *source);
  std::mt19937 random(5);
  for (const Parameter* parameter : model->parameters()) {
    std::vector<Box> pieces;
    cut(parameter->shard, 3, random, pieces);
    for (const Box& piece : pieces) {
      const Tensor found = at::empty(piece.shape, at::kFloat);
      weights.read(parameter->fqn, piece, found);
      EXPECT_TRUE(found.equal(box_of(parameter->value, piece))) << parameter->fqn;
    }
  }
}

TEST(HuggingFaceExport, FollowsTheIndexOfTheAssetsWhenItHasTheSameNames) {
  const auto model = random_model(args_of());
  const fs::path folder = test::test_folder(), assets = folder / "assets";
  write_whole(HuggingFaceExport(*model, at::kFloat, "", 50'000), assets, *model);
  const auto split = checkpoint::read_safetensors_index(assets / "model.safetensors.index.json");
  write_file_atomically(assets / "tokenizer.json", R"({"added_tokens": [{"id": 5, "content": "<s>"}]})");
  write_file_atomically(assets / "tokenizer_config.json", R"({"bos_token": {"content": "<s>"}, "eos_token": "</s>"})");
  fs::remove(assets / "config.json");
  write_whole(HuggingFaceExport(*model, at::kBFloat16, assets), folder / "same", *model);
  EXPECT_EQ(checkpoint::read_safetensors_index(folder / "same" / "model.safetensors.index.json"), split);
  const auto files = contents(folder / "same");
  EXPECT_TRUE(files.contains("tokenizer.json"));
  EXPECT_NE(files.at("config.json").find("\"bos_token_id\": 5,"), std::string::npos);
  EXPECT_NE(files.at("config.json").find("\"eos_token_id\": null"), std::string::npos);
  EXPECT_NE(files.at("config.json").find("\"torch_dtype\": \"bfloat16\""), std::string::npos);

  const auto tied = random_model(args_of(/*tied=*/true));  // a name less than the index has
  write_whole(HuggingFaceExport(*tied, at::kBFloat16, assets), folder / "other", *tied);
  EXPECT_TRUE(fs::exists(folder / "other" / "model.safetensors"));
}

TEST(HuggingFaceExport, NoFileOfSeveralHasTheNameOfTheOnlyOne) {
  const auto model = random_model(args_of());
  const fs::path folder = test::test_folder();
  write_whole(HuggingFaceExport(*model, at::kFloat, "", 50'000), folder, *model);
  const fs::path index = folder / "model.safetensors.index.json";
  std::string text = read_file(index, "index");
  const std::string first = checkpoint::read_safetensors_index(index).begin()->second;
  for (size_t at = 0; (at = text.find(first)) != std::string::npos;)
    text.replace(at, first.size(), "model.safetensors");
  write_file_atomically(index, text);
  const HuggingFaceExport out(*model, at::kFloat, folder, 50'000);
  EXPECT_GT(out.file_count(), 1U);
  for (size_t i = 0; i < out.file_count(); ++i) EXPECT_NE(out.file_name(i), "model.safetensors");
}

TEST(HuggingFaceExport, SpecialTokensAndPositionsComeFromTheConfigOfTheAssets) {
  const auto model = random_model(args_of());
  const fs::path folder = test::test_folder(), assets = folder / "assets";
  write_file_atomically(assets / "config.json", R"({"model_type": "llama", "max_position_embeddings": 4096,
      "bos_token_id": 3, "eos_token_id": [4, 5], "vocab_size": 9})");
  HuggingFaceExport(*model, at::kFloat, assets).create_files(folder / "out");
  const std::string config = contents(folder / "out").at("config.json");
  for (const char* part : {"\"bos_token_id\": 3", "\"max_position_embeddings\": 4096", "\"vocab_size\": 101"}) {
    EXPECT_NE(config.find(part), std::string::npos) << part;
  }
  write_file_atomically(assets / "config.json", "[]");
  EXPECT_EQ(error_of([&] { HuggingFaceExport(*model, at::kFloat, assets).create_files(folder / "out"); }),
            (assets / "config.json").string() + " is not a JSON object. Fetch it again, or remove it.");
}

TEST(HuggingFaceExport, WhatCannotBeWrittenIsSaidInOneSentence) {
  const auto model = random_model(args_of());
  const fs::path folder = test::test_folder();
  const HuggingFaceExport out(*model, at::kFloat, "");
  write_file_atomically(folder / "file", "");
  EXPECT_EQ(
      error_of([&] { out.create_files(folder / "file" / "below"); }),
      (folder / "file" / "below").string() + " cannot be made: Not a directory. Check permissions and free space.");
  fs::create_symlink("/dev/full", folder / "model.safetensors");
  const std::string full = (folder / "model.safetensors").string() +
                           " cannot be written: No space left on device. Check permissions and free space.";
  EXPECT_EQ(error_of([&] { out.create_files(folder); }), full);
  EXPECT_EQ(error_of([&] { write_whole(out, folder, *model); }), full);
  fs::remove(folder / "model.safetensors");
  const Parameter& first = *model->parameters().front();
  EXPECT_EQ(error_of([&] { out.write(folder, first.fqn, first.shard, first.value); }),
            (folder / "model.safetensors").string() +
                " cannot be written: No such file or directory. Check permissions and free space.");
}

// The tensors of a model as Hugging Face has them, with one change.
std::string refusal(const std::function<void(std::map<std::string, Tensor>&)>& change) {
  const auto model = random_model(args_of());
  const fs::path folder = test::test_folder();
  write_whole(HuggingFaceExport(*model, at::kFloat, ""), folder, *model);
  std::map<std::string, Tensor> tensors;
  const checkpoint::SafetensorsReader reader(folder);
  for (const std::string& name : reader.names()) tensors[name] = reader.tensor(name).clone();
  change(tensors);
  std::vector<checkpoint::NamedTensor> named;
  for (const auto& [name, tensor] : tensors) named.push_back({name, tensor});
  checkpoint::write_safetensors(folder / "model.safetensors", named);
  const std::string message = error_of([&] { load_hugging_face_weights(*model, folder); });
  const std::string prefix = folder.string();
  return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
}

TEST(ModelWeights, QuantisedWeightsAreExpandedOnlyWhereThatIsAskedFor) {
  const auto quantise = [](std::map<std::string, Tensor>& tensors) {
    Tensor& weight = tensors["model.layers.0.mlp.up_proj.weight"];
    weight = weight.to(at::kFloat8_e4m3fn);
    tensors["model.layers.0.mlp.up_proj.weight_scale_inv"] =
        at::zeros({(weight.size(0) + 127) / 128, (weight.size(1) + 127) / 128}) + 0.5;
  };
  EXPECT_EQ(refusal(quantise),
            " holds quantised weights, such as \"model.layers.0.mlp.up_proj.weight\". Set "
            "checkpoint.initial_load_in_hf_quantized = true to expand them.");
}

TEST(ModelWeights, EveryMismatchHasASentence) {
  const std::string remedy = " Check model.name and model.flavor against the source of the weights.";
  EXPECT_EQ(refusal([](auto& tensors) { tensors.erase("model.norm.weight"); }),
            " lacks 1 of the model's 30 tensors, such as \"model.norm.weight\"." + remedy);
  EXPECT_EQ(refusal([](auto& tensors) { tensors["model.layers.3.mlp.up_proj.weight"] = at::zeros({2}); }),
            " has 1 tensors that the model does not have, such as \"model.layers.3.mlp.up_proj.weight\"." + remedy);
  EXPECT_EQ(refusal([](auto& tensors) { tensors["model.norm.weight"] = at::zeros({31}); }),
            ": model.norm.weight is [31], but [32] in the model." + remedy);
  EXPECT_EQ(refusal([](auto& tensors) { tensors["model.norm.weight"] = at::zeros({32}, at::kLong); }),
            ": model.norm.weight has dtype int64, but a weight has floating-point numbers. Convert it to one of "
            "float32, bfloat16 and float16.");
  EXPECT_EQ(refusal([](auto& tensors) { tensors["model.layers.0.self_attn.rotary_emb.inv_freq"] = at::zeros({4}); }),
            "no error");
  EXPECT_EQ(refusal([](auto& tensors) { tensors.erase("lm_head.weight"); }), "no error");
}

}  // namespace
}  // namespace titanium::models
