#include "titanium/doctor/doctor.h"

#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "titanium/base/collect_errors.h"
#include "titanium/comm/connect.h"
#include "titanium/comm/flight_recorder.h"
#include "titanium/comm/rendezvous/job_store.h"
#include "titanium/comm/text_collectives.h"
#include "titanium/data/fetchable.h"
#include "titanium/doctor/bucket_check.h"
#include "titanium/doctor/host_checks.h"
#include "titanium/doctor/link_checks.h"
#include "titanium/doctor/rates.h"
#include "titanium/doctor/storage_check.h"
#include "titanium/remote/stores/object_writer.h"
#include "titanium/tensor/gpu_backend.h"
#include "titanium/tensor/version.h"
#include "titanium/train/check_run.h"
#include "titanium/train/host_memory.h"
#include "titanium/train/start_world.h"
#include "titanium/train/task/text_data.h"

namespace titanium::doctor {
namespace {

void append(std::vector<Finding>& list, std::vector<Finding> more) {
  std::ranges::move(more, std::back_inserter(list));
}

Finding broken(const std::string& check, std::string sentence) {
  sentence = sentence.substr(0, sentence.find('\n'));  // libtorch appends a stack
  return {
      .check = check, .severity = Severity::kError, .fact = sentence, .remedy = "The sentence says what to change."};
}

// A data set without a path, which is read where the hub has it.
bool is_at_hub(const train::DataPlace& place) { return !place.path && data::hub_address(place.dataset); }

std::string fact_of_whole_files(const JobConfig& config) {
  if (!std::ranges::any_of(train::data_places(config), is_at_hub)) return "all files are there and can be read";
  return "all files of this machine are there and can be read; the hub is asked when the run starts";
}

// What the run will read and need. `checkpoint_bytes` becomes the size of one of its checkpoints.
std::vector<Finding> check_files_and_memory(const Request& request, Device device, int64_t& checkpoint_bytes) {
  const JobConfig& config = request.run->config;
  const comm::Environment& place = request.environment;
  std::vector<std::string> problems;
  train::RunCheck run;
  collect_errors(problems, [&] {
    train::check_options(*request.run, place.world_size, config::Purpose::kRun);
    run = train::check_run(config, place.world_size, {place.rank});
    for (const train::ModelPlan& plan : run.plans) {
      if (config.checkpoint.enable) {
        checkpoint_bytes = (plan.memory.parameters + plan.memory.optimizer) * place.world_size / plan.dims.dp_replicate;
      }
      if (device.is_cuda()) check_fits(plan.memory, gpu_device_properties(device.index()).total_memory);
      if (device.is_cpu()) train::check_fits_host(plan.memory, train::host_memory());
    }
  });
  problems.insert(problems.end(), run.problems.begin(), run.problems.end());
  std::vector<Finding> findings;
  for (const std::string& problem : problems) findings.push_back(broken("configuration", problem));
  for (const std::string& file : run.files) findings.push_back(broken("data, tokenizer", file));
  if (problems.empty())
    findings.push_back({.check = "configuration", .fact = "the model fits, and the ranks its layout"});
  if (run.files.empty()) findings.push_back({.check = "data, tokenizer", .fact = fact_of_whole_files(config)});
  return findings;
}

// One examination: what this rank has found so far, and with whom it goes on.
class Examination {
 public:
  explicit Examination(const Request& request)
      : request_(request), config_(request.run ? request.run->config : JobConfig{}), place_(request.environment) {
    own_ = {place_.rank, place_.group_rank, host_name(), {}};
    place_.run_id += "-doctor";  // Note [Two stores]
    if (!place_.agent_hosts_store) ++place_.master_port;
  }

  Diagnosis run() {
    look_at_this_machine();
    try {
      return together();
    } catch (const Error& error) {
      add({broken("ranks", error.what())});
      return conclude({own_});
    }
  }

 private:
  void add(std::vector<Finding> findings) { append(own_.findings, std::move(findings)); }

  void look_at_this_machine() {
    add({{.check = "libraries", .fact = library_versions()}});
    add(check_host(place_));
    try {
      device_ = train::pick_device(config_, place_);
      add(measure_device(device_, place_.local_world_size));
    } catch (const std::exception& error) {
      add({broken("device", error.what())});
    }
    if (request_.run) add(check_files_and_memory(request_, device_, checkpoint_bytes_));
  }

  comm::ConnectOptions connect_options() const {
    comm::ConnectOptions options;
    options.environment = place_;
    options.environment.agent_hosts_store = true;  // the store of `together`
    options.device = device_;
    if (config_.comm.backend == "gloo") options.cuda_carrier = comm::ConnectOptions::Carrier::kGloo;
    options.init_timeout = request_.timeout;
    options.on_peer_failure = [report = request_.on_peer_failure, rank = place_.rank](const std::string& news) {
      if (report) report(comm::stop_line(rank, news));
    };
    return options;
  }

  Diagnosis together() {
    if (place_.world_size == 1) {
      add(storage([] {}));
      return conclude({own_});
    }
    const comm::Deadline deadline{request_.timeout, "--timeout"};
    comm::JobStore store(place_, deadline);
    add(check_ports(place_, store, deadline));
    const std::unique_ptr<comm::World> world = comm::connect(connect_options());
    std::vector<int> all(static_cast<size_t>(place_.world_size));
    std::iota(all.begin(), all.end(), 0);
    const comm::GroupPtr host = world->host_group("doctor", all), group = world->group("doctor", all);
    add(storage([&] { host->barrier(); }));
    measure_links(*host, *group);
    const Diagnosis diagnosis = gather(*host);
    host->barrier();  // rank 0 may host the store
    return diagnosis;
  }

  std::vector<Finding> storage(const std::function<void()>& barrier) const {
    const config::Checkpoint& checkpoint = config_.checkpoint;
    const bool in_bucket = checkpoint.enable && remote::is_writable_address(checkpoint.folder);
    const std::filesystem::path dump = config_.job.dump_folder;
    // Ranks have to agree on it; one alone can keep out of the way of others.
    const std::string trial = place_.world_size == 1
                                  ? fmt::format("titanium_doctor_{}_{}", host_name(), ::getpid())
                                  : fmt::format("titanium_doctor_{}_{}", place_.run_id, place_.master_port);
    std::vector<Finding> findings = check_storage({.folder = in_bucket ? dump : dump / checkpoint.folder,
                                                   .label = in_bucket ? "dump folder" : "checkpoint folder",
                                                   .trial = trial,
                                                   .bytes = request_.storage_bytes,
                                                   .checkpoint_bytes = in_bucket ? 0 : checkpoint_bytes_,
                                                   .rank = place_.rank,
                                                   .world_size = place_.world_size,
                                                   .barrier = barrier});
    if (in_bucket) {
      append(findings, check_bucket({.address = checkpoint.folder,
                                     .trial = trial,
                                     .bytes = request_.storage_bytes,
                                     .rank = place_.rank,
                                     .world_size = place_.world_size,
                                     .barrier = barrier}));
    }
    return findings;
  }

  void measure_links(comm::Group& host, comm::Group& group) {
    add(check_clocks(host, place_));
    const bool one_node = place_.local_world_size == place_.world_size;
    std::optional<double> expected = request_.expected_gbs;
    const bool nccl = device_.is_cuda() && config_.comm.backend != "gloo";
    if (!nccl) {
      add(measure_collectives(host, at::kCPU, "Gloo", expected));
      add(measure_pairs(host, host, at::kCPU, "Gloo"));
      return;
    }
    if (!expected && one_node) {
      if (const auto rates = expected_rates(gpu_device_properties(device_.index()).name)) expected = rates->bus_gbs;
    }
    add(measure_collectives(group, device_, "NCCL", expected));
    add(measure_pairs(group, host, device_, "NCCL"));
    add(measure_collectives(host, at::kCPU, "Gloo", std::nullopt));
  }

  Diagnosis gather(comm::Group& host) {
    std::vector<RankFindings> ranks;
    for (const std::string& text : comm::gather_texts(host, to_json_text(own_))) ranks.push_back(from_json_text(text));
    Diagnosis diagnosis;
    if (place_.rank == 0) {
      const double least = device_.is_cuda() ? 0.8 : 0.5;  // cores are shared with others more than GPUs are
      for (const auto& [check, figure] :
           {std::pair("GEMM", device_.is_cuda() ? "tflops" : "gflops"), {"memory copy", "copy_gbs"}}) {
        append(ranks[0].findings, compare_ranks(ranks, check, figure, least));
      }
      for (const CommonFact& common : common_facts()) append(ranks[0].findings, compare_facts(ranks, common));
      diagnosis = conclude(std::move(ranks));
    }
    std::istringstream counts(comm::broadcast_text(host, fmt::format("{} {}", diagnosis.errors, diagnosis.warnings)));
    counts >> diagnosis.errors >> diagnosis.warnings;
    return diagnosis;
  }

  Diagnosis conclude(std::vector<RankFindings> ranks) const {
    std::vector<std::string> hosts;
    for (const RankFindings& rank : ranks) {
      if (std::ranges::find(hosts, rank.host) == hosts.end()) hosts.push_back(rank.host);
    }
    int nodes = 1;
    for (const RankFindings& rank : ranks) nodes = std::max(nodes, rank.node + 1);
    const size_t size = ranks.size();
    const bool all = size == static_cast<size_t>(place_.world_size);
    Report report{fmt::format("{}{} rank{} on {} node{} ({}), {}", all ? "" : fmt::format("{} of ", size),
                              place_.world_size, place_.world_size == 1 ? "" : "s", nodes, nodes == 1 ? "" : "s",
                              fmt::join(hosts, ", "), device_.is_cuda() ? "GPU" : "CPU"),
                  std::move(ranks)};
    Diagnosis diagnosis{std::nullopt, report.count(Severity::kError), report.count(Severity::kWarning)};
    diagnosis.report = std::move(report);
    return diagnosis;
  }

  const Request& request_;
  JobConfig config_;
  comm::Environment place_;
  Device device_ = at::kCPU;
  int64_t checkpoint_bytes_ = 0;
  RankFindings own_;
};

}  // namespace

Diagnosis examine(const Request& request) { return Examination(request).run(); }

}  // namespace titanium::doctor
