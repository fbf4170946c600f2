#include "titanium/config/availability.h"

#include "tests/support/source_folder.h"
#include "tests/unit/config/config_file.h"

namespace titanium::config {
namespace {

Args missing(const Args& args) { return unavailable_options(load_config(args)); }

TEST(Availability, DefaultsAreAvailable) { EXPECT_EQ(missing({}), Args{}); }

TEST(Availability, ShippedDebugModelIsAvailable) {
  EXPECT_EQ(missing({fmt::format("--job.config_file={}/configs/llama3/debug_model.toml", source_folder().string())}),
            Args{});
}

TEST(Availability, EachMissingOptionIsNamedWithItsValue) {
  EXPECT_EQ(
      missing({"--fault_tolerance.enable", "--model.print_after_conversion", "--model.converters=quantize.linear.mx",
               "--activation_checkpoint.mode=memory_budget", "--activation_checkpoint.visualize_memory_budget_pareto"}),
      (Args{"not available yet: model.converters = [\"quantize.linear.mx\"]",
            "not available yet: model.print_after_conversion = true",
            "not available yet: activation_checkpoint.visualize_memory_budget_pareto = true",
            "not available yet: fault_tolerance.enable = true"}));
}

TEST(Availability, OptionsThatOnlyObserveMatterToARunAndNotToAPlan) {
  const LoadedConfig loaded = load_config(Args{"--activation_checkpoint.determinism_check=none",
                                               "--model.print_after_conversion", "--activation_checkpoint.mode=full",
                                               "--activation_checkpoint.debug", "--fault_tolerance.enable"});
  EXPECT_EQ(unavailable_options(loaded).size(), 4U);
  EXPECT_EQ(unavailable_options(loaded, Purpose::kPlan), Args{"not available yet: fault_tolerance.enable = true"});
}

TEST(Availability, OneLoadBalancerOfContextParallelismIsMissing) {
  EXPECT_EQ(missing({"--parallelism.context_parallel_degree=2", "--parallelism.context_parallel_load_balancer=None"}),
            Args{});
  EXPECT_EQ(missing({"--parallelism.context_parallel_degree=2", "--parallelism.context_parallel_load_balancer=ptrr"}),
            Args{"not available yet: parallelism.context_parallel_load_balancer = \"ptrr\""});
  EXPECT_EQ(missing({"--parallelism.context_parallel_load_balancer=ptrr"}), Args{});
}

TEST(Availability, OptionsUnderASwitchThatIsOffDoNotMatter) {
  EXPECT_EQ(missing({"--parallelism.pipeline_parallel_schedule=GPipe", "--checkpoint.interval=3",
                     "--checkpoint.exclude_from_loading=optimizer", "--quantize.linear.float8.emulate",
                     "--metrics.save_for_all_ranks", "--activation_checkpoint.mode=none",
                     "--activation_checkpoint.early_stop", "--activation_checkpoint.memory_budget=0.1"}),
            Args{});
}

TEST(Availability, OfTheConvertersOnlyThatOfLinearLayersToMxIsMissing) {
  EXPECT_EQ(missing({"--model.converters=float8", "--quantize.linear.float8.recipe_name=rowwise"}), Args{});
  EXPECT_EQ(missing({"--model.converters=quantize.linear.float8,quantize.grouped_mm.float8"}), Args{});
  EXPECT_EQ(missing({"--model.converters=quantize.grouped_mm.mx"}), Args{});
  EXPECT_EQ(missing({"--model.converters=quantize.linear.mx"}),
            Args{"not available yet: model.converters = [\"quantize.linear.mx\"]"});
}

TEST(Availability, AllOptionsOfCheckpointsAreThere) {
  EXPECT_EQ(missing({"--checkpoint.enable", "--checkpoint.load_step=10", "--checkpoint.async_mode=async"}), Args{});
  EXPECT_EQ(
      missing({"--checkpoint.enable", "--checkpoint.initial_load_in_hf", "--checkpoint.initial_load_in_hf_quantized"}),
      Args{});
}

TEST(Availability, OnlyTheAxesThatAreThereMayBeUsed) {
  EXPECT_EQ(missing({"--parallelism.data_parallel_replicate_degree=2", "--parallelism.data_parallel_shard_degree=4",
                     "--parallelism.tensor_parallel_degree=8"}),
            Args{});
  EXPECT_EQ(missing({"--parallelism.pipeline_parallel_degree=2", "--parallelism.expert_parallel_degree=2",
                     "--parallelism.tensor_parallel_degree=2", "--parallelism.expert_tensor_parallel_degree=2"}),
            Args{});
  EXPECT_EQ(missing({"--parallelism.expert_parallel_degree=2", "--parallelism.expert_parallel_comm_backend=deepep"}),
            Args{"not available yet: parallelism.expert_parallel_comm_backend = \"deepep\""});
  EXPECT_EQ(missing({"--comm.mode=fake_backend"}), Args{});
  EXPECT_EQ(missing({"--comm.mode=local_tensor"}), Args{"not available yet: comm.mode = \"local_tensor\""});
}

TEST(Availability, NotesAreForOptionsThatMiss) {
  EXPECT_EQ(availability_note("model.converters"), "quantize.linear.mx is not available yet");
  EXPECT_EQ(availability_note("training.steps"), "");
}

}  // namespace
}  // namespace titanium::config
