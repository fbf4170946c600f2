// One rank of several runs after each other, for layouts.py.
//
//   RANK=r MASTER_ADDR=a MASTER_PORT=p layouts_driver <folder> <layouts>
//
// Each line of <layouts> is a run: its name, its number of ranks, and options of `titanium train`. Ranks below that
// number take part. Each writes its shards before and after training, with the optimizer's states, to
// <folder>/<name>.<rank>.safetensors, with the first index of every shard in the metadata; rank 0 writes
// <folder>/<name>.json.
#include <fmt/ranges.h>

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/support/tiny_llama.h"
#include "titanium/checkpoint/safetensors/writer.h"
#include "titanium/comm/connect.h"
#include "titanium/config/reading/load_config.h"
#include "titanium/models/llama3/model.h"
#include "titanium/train/train_step.h"

namespace {

using namespace titanium;

struct Layout {
  std::string name;
  int ranks = 1;
  std::vector<std::string> options;
};

std::vector<Layout> read_layouts(const std::string& path) {
  std::vector<Layout> layouts;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Layout layout;
    words >> layout.name >> layout.ranks;
    for (std::string option; words >> option;) layout.options.push_back(option);
    layouts.push_back(std::move(layout));
  }
  return layouts;
}

class ShardFile {
 public:
  void add(const std::string& prefix, const std::vector<Parameter*>& parameters) {
    for (const Parameter* parameter : parameters) {
      const std::string name = prefix + parameter->fqn;
      tensors_.push_back({name, parameter->value.detach().clone()});
      metadata_[name] = fmt::format("{}", fmt::join(parameter->shard.offset, ","));
    }
  }
  void add_moments(const optim::Optimizer& optimizer) {
    for (const optim::StateTensor& part : optimizer.state()) {
      if (part.name == "step") continue;
      const std::string name = fmt::format("final.{}.{}", part.parameter->fqn, part.name);
      tensors_.push_back({name, part.tensor});
      metadata_[name] = fmt::format("{}", fmt::join(part.parameter->shard.offset, ","));
    }
  }
  void write(const std::string& path) const { checkpoint::write_safetensors(path, tensors_, metadata_); }

 private:
  std::vector<checkpoint::NamedTensor> tensors_;
  std::map<std::string, std::string> metadata_;
};

void run_layout(const Layout& layout, comm::Environment environment, const std::string& folder) {
  environment.world_size = environment.local_world_size = layout.ranks;
  environment.run_id = layout.name;
  const config::LoadedConfig loaded = config::load_config(layout.options);
  config::check_world_size(loaded, layout.ranks);
  const JobConfig& config = loaded.config;
  comm::ConnectOptions options;
  options.environment = environment;
  const std::shared_ptr<comm::World> world = comm::connect(options);
  auto model = std::make_unique<models::llama3::Llama3>(test::tiny_llama(config.training.seq_len));
  auto plan = train::plan_model(config, layout.ranks, environment.rank, std::move(model));
  train::TrainState run = train::build_train_state(config, at::kCPU, world, std::move(plan));
  ShardFile shards;
  shards.add("initial.", run.parameters);
  nlohmann::json report;
  for (int64_t i = 0; i < config.training.steps; ++i) {
    const train::StepReport step = train::train_step(run).value();
    const train::LossOfAllRanks loss = train::loss_of_all_ranks(run, step);
    report["loss"].push_back(loss.mean.item<double>());
    report["grad_norm"].push_back(step.grad_norm.item<double>());
    report["valid_tokens"].push_back(step.total_weight);
  }
  report["tokens_seen"] = run.tokens_seen;
  shards.add("final.", run.parameters);
  shards.add_moments(*run.optimizer);
  shards.write(fmt::format("{}/{}.{}.safetensors", folder, layout.name, environment.rank));
  if (environment.rank == 0) std::ofstream(fmt::format("{}/{}.json", folder, layout.name)) << report.dump();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    comm::Environment environment;
    environment.rank = environment.local_rank = std::atoi(std::getenv("RANK"));
    environment.master_addr = std::getenv("MASTER_ADDR");
    environment.master_port = std::atoi(std::getenv("MASTER_PORT"));
    environment.agent_hosts_store = true;
    for (const Layout& layout : read_layouts(argv[2])) {
      if (environment.rank < layout.ranks) run_layout(layout, environment, argv[1]);
    }
    return 0;
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
}
