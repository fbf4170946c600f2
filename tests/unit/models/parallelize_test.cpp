#include "titanium/models/parallelize.h"

#include <gtest/gtest.h>

#include "titanium/base/error.h"
#include "titanium/models/registry.h"

namespace titanium::models {
namespace {

JobConfig config_of(const char* flavor) {
  JobConfig config;
  config.model.flavor = flavor;
  return config;
}

std::string refusal(JobConfig config, const parallel::ParallelDims& dims) {
  const auto model = build_model(config, 2048);
  try {
    place_parameters(*model, config, dims, 0);
    return "";
  } catch (const UsageError& error) {
    return error.what();
  }
}

TEST(Parallelize, DegreesThatDoNotFitTheModelAreRefusedBeforeAnythingIsAllocated) {
  EXPECT_EQ(refusal(config_of("8B"), {.tp = 16}),
            "parallelism.tensor_parallel_degree = 16 does not divide the model's 8 key/value heads. Use a degree that "
            "divides 32 heads, 8 key/value heads, 14336 feed-forward columns and 128256 vocabulary entries.");
  EXPECT_EQ(refusal(config_of("8B"), {.tp = 3}).substr(0, 77),
            "parallelism.tensor_parallel_degree = 3 does not divide the model's 32 heads. ");
  EXPECT_EQ(refusal(config_of("8B"), {.tp = 8}), "");
}

TEST(Parallelize, OffloadNeedsShards) {
  JobConfig config = config_of("debugmodel");
  config.training.enable_cpu_offload = true;
  EXPECT_NE(refusal(config, {}).find("parallelism.fsdp_on_one_rank = true"), std::string::npos);
  EXPECT_EQ(refusal(config, {.dp_shard = 2}), "");
}

TEST(Parallelize, ShardsOfAllRanksMakeUpEveryParameter) {
  const JobConfig config = config_of("debugmodel");
  const parallel::ParallelDims dims = {.dp_replicate = 2, .dp_shard = 3, .tp = 2};
  std::map<std::string, int64_t> held;
  std::map<std::string, bool> is_cut;
  for (int rank = 0; rank < dims.world(); ++rank) {
    const auto model = build_model(config, 2048);
    place_parameters(*model, config, dims, rank);
    for (const Parameter* parameter : model->parameters()) {
      held[parameter->fqn] += volume(parameter->shard.shape);
      is_cut[parameter->fqn] = parameter->part.shape != parameter->global_shape;
    }
  }
  const auto model = build_model(config, 2048);
  for (const Parameter* parameter : model->parameters()) {
    const int64_t copies = dims.dp_replicate * (is_cut[parameter->fqn] ? 1 : dims.tp);
    EXPECT_EQ(held[parameter->fqn], copies * volume(parameter->global_shape)) << parameter->fqn;
  }
}

}  // namespace
}  // namespace titanium::models
