// Folders of Hugging Face with experts, written whole and read by ranks that share them.
#include <ATen/ops/equal.h>
#include <gtest/gtest.h>

#include "tests/support/tensors.h"
#include "tests/support/test_folder.h"
#include "titanium/models/deepseek_v3/model.h"
#include "titanium/models/gpt_oss/model.h"
#include "titanium/models/hugging_face_export.h"
#include "titanium/models/llama4/model.h"
#include "titanium/models/parallelize.h"
#include "titanium/models/qwen3/model.h"
#include "titanium/models/registry.h"

namespace titanium::models {
namespace {

using Maker = std::function<std::unique_ptr<Model>()>;

template <typename Args>
Args small(Args args) {
  args.dim = 32;
  args.n_layers = 2;
  args.vocab_size = 64;
  return args;
}
// 8 experts of 24 columns.
decoder::MoeArgs few(decoder::MoeArgs moe) {
  moe.num_experts = 8;
  moe.top_k = 2;
  moe.moe_hidden_dim = 24;
  return moe;
}

std::vector<std::pair<const char*, Maker>> families() {
  deepseek_v3::Args deepseek = small(deepseek_v3::flavors().at("debugmodel"));
  deepseek.n_dense_layers = 1;
  deepseek.moe = few(deepseek.moe);
  qwen3::Args qwen = small(qwen3::flavors().at("debugmodel_moe"));
  qwen.moe = few(*qwen.moe);
  gpt_oss::Args oss = small(gpt_oss::flavors().at("debugmodel"));
  oss.moe = few(oss.moe);
  llama4::Args llama = small(llama4::flavors().at("debugmodel"));
  llama.moe = few(llama.moe);
  llama.moe.top_k = 1;
  return {{"deepseek_v3", [=] { return std::make_unique<deepseek_v3::DeepseekV3>(deepseek); }},
          {"qwen3", [=] { return std::make_unique<qwen3::Qwen3>(qwen); }},
          {"gpt_oss", [=] { return std::make_unique<gpt_oss::GptOss>(oss); }},
          {"llama4", [=] { return std::make_unique<llama4::Llama4>(llama); }}};
}

TEST(ExpertFolders, AreReadByEachRankAsItsPart) {
  for (const auto& [name, make] : families()) {
    SCOPED_TRACE(name);
    const auto model = make();
    model->materialize(at::kFloat, at::kCPU);
    for (Parameter* parameter : model->parameters()) {
      parameter->value.detach().copy_(test::random_tensor(parameter->global_shape));
    }
    const std::filesystem::path folder = test::test_folder() / name;
    const HuggingFaceExport out(*model, at::kFloat, "");
    out.create_files(folder);
    for (const Parameter* parameter : model->parameters()) {
      out.write(folder, parameter->fqn, parameter->shard, parameter->value);
    }
    out.finish(folder);
    for (const parallel::ParallelDims& dims : {parallel::ParallelDims{.dp_shard = 4, .ep = 2},
                                               {.dp_shard = 4, .ep = 4},
                                               {.dp_shard = 2, .tp = 2, .ep = 4},
                                               {.dp_shard = 2, .tp = 2, .ep = 2, .etp = 2},
                                               {.dp_shard = 1, .tp = 2}}) {
      JobConfig config;
      config.parallelism.expert_parallel_degree = dims.ep;
      config.parallelism.expert_tensor_parallel_degree = dims.etp;
      config.parallelism.tensor_parallel_degree = dims.tp;
      for (int rank = 0; rank < dims.world(); ++rank) {
        const auto loaded = make();
        place_parameters(*loaded, config, dims, rank);
        loaded->materialize(at::kFloat, at::kCPU);
        load_hugging_face_weights(*loaded, folder);
        const auto expected = model->parameters(), found = loaded->parameters();
        for (size_t i = 0; i < found.size(); ++i) {
          EXPECT_TRUE(at::equal(found[i]->value, box_of(expected[i]->value, found[i]->shard)))
              << found[i]->fqn << ", rank " << rank << " of " << describe(dims);
        }
      }
    }
  }
}

}  // namespace
}  // namespace titanium::models
