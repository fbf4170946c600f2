#include "titanium/doctor/rates.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "titanium/base/error.h"
#include "titanium/doctor/gpu_health.h"
#include "titanium/tensor/gpu_backend.h"

namespace titanium::doctor {
namespace {

using Clock = std::chrono::steady_clock;

struct KnownDevice {
  std::string_view part;  // of the device's name; the first match counts
  double peak_tflops;
  double memory_gbs;
  double nvlink_gbs;  // in one direction
};
constexpr std::array kDevices = {
    KnownDevice{"A100", 312, 1555, 300},  KnownDevice{"H100 PCIe", 756, 2000, 0}, KnownDevice{"H100 NVL", 835, 3900, 0},
    KnownDevice{"H100", 989, 3350, 450},  KnownDevice{"H200", 989, 4800, 450},    KnownDevice{"GB200", 2500, 8000, 900},
    KnownDevice{"B200", 2250, 8000, 900},
};
// What a large product, a copy and NCCL's rings reach of that on a healthy machine, with some room.
constexpr double kProduct = 0.55, kCopy = 0.70, kRing = 0.40;

struct Trial {
  int64_t size;  // of the matrices
  int64_t bytes;
  Dtype dtype;
};

void wait_for(Device device) {
  if (device.is_cuda()) synchronize_gpu();
}

// Calls `work` for at least `seconds`; calls per second. The device is waited for at the end, and after every round.
template <typename Work>
double calls_per_second(Device device, double seconds, int per_round, const Work& work) {
  work();
  wait_for(device);
  int calls = 0;
  const auto begin = Clock::now();
  double passed = 0;
  do {
    for (int call = 0; call < per_round; ++call) work();
    wait_for(device);
    calls += per_round;
    passed = std::chrono::duration<double>(Clock::now() - begin).count();
  } while (passed < seconds);
  return calls / passed;
}

Finding judge(const std::string& check, const std::string& figure, const std::string& unit, double rate,
              double expected) {
  Finding finding{.check = check, .fact = fmt::format("{:.4g} {}", rate, unit), .figures = {{figure, rate}}};
  if (expected == 0) return finding;
  finding.fact += fmt::format(", at least {:.4g} expected", expected);
  finding.figures["expected"] = expected;
  if (rate < expected) {
    finding.severity = Severity::kWarning;
    finding.remedy =
        "Another process may use the device, or it is throttled: see nvidia-smi, and compare with other nodes.";
  }
  return finding;
}

std::vector<Finding> check_peer_access(int own, int gpus) {
  for (int other = 0; other < gpus; ++other) {
    if (other == own || gpu_peer_access(own, other)) continue;
    return {{.check = "peer access",
             .severity = Severity::kWarning,
             .fact = fmt::format("GPU {} cannot reach GPU {} without the host", own, other),
             .remedy =
                 "Collectives go through host memory: see nvidia-smi topo -p2p r, IOMMU and the container's devices."}};
  }
  return {{.check = "peer access", .fact = gpus == 1 ? "one GPU" : fmt::format("between all {} GPUs", gpus)}};
}

std::vector<Finding> check_gpu(Device device, int local_world_size, Tensor& a, Tensor& out) {
  const GpuDeviceProperties gpu = gpu_device_properties(device.index());
  std::vector<Finding> findings = {
      {.check = "GPU",
       .fact = fmt::format("{}, {:.1f} GiB", gpu.name, static_cast<double>(gpu.total_memory) / (1 << 30))},
      {.check = "GPU count", .fact = fmt::format("{} that this rank sees", gpu_device_count())}};
  for (int call = 0; call < 50; ++call) at::mm_out(out, a, a);  // busy while it is asked
  if (const auto health = read_gpu_health(gpu.pci_bus_id)) {
    const auto own = static_cast<uint64_t>(gpu_memory(device.index()).max_reserved);
    for (Finding& finding : judge_gpu_health(*health, own)) findings.push_back(std::move(finding));
  } else {
    findings.push_back({.check = "GPU clocks",
                        .severity = Severity::kWarning,
                        .fact = "the driver's library libnvidia-ml.so.1 does not answer",
                        .remedy = "Clocks, throttling and ECC are not known: in a container, set "
                                  "NVIDIA_DRIVER_CAPABILITIES=compute,utility."});
  }
  wait_for(device);
  if (local_world_size > 1) {
    for (Finding& finding : check_peer_access(device.index(), std::min(gpu_device_count(), local_world_size))) {
      findings.push_back(std::move(finding));
    }
  }
  return findings;
}

}  // namespace

std::optional<ExpectedRates> expected_rates(std::string_view gpu_name) {
  for (const KnownDevice& known : kDevices) {
    if (gpu_name.find(known.part) == std::string_view::npos) continue;
    return ExpectedRates{known.peak_tflops * kProduct, known.memory_gbs * kCopy, known.nvlink_gbs * kRing};
  }
  return std::nullopt;
}

std::vector<Finding> measure_device(Device device, int local_world_size) {
  const bool gpu = device.is_cuda();
  const Trial trial = gpu ? Trial{8192, int64_t{1} << 30, at::kBFloat16} : Trial{384, 16 << 20, at::kFloat};
  const auto expected =
      gpu ? expected_rates(gpu_device_properties(device.index()).name).value_or(ExpectedRates{}) : ExpectedRates{};
  const auto options = at::TensorOptions().device(device).dtype(trial.dtype);
  Tensor a = at::ones({trial.size, trial.size}, options), out = at::empty_like(a);
  std::vector<Finding> findings;
  if (gpu) findings = check_gpu(device, local_world_size, a, out);
  const double flop = 2.0 * static_cast<double>(trial.size * trial.size * trial.size);
  const double products = calls_per_second(device, 0.3, gpu ? 10 : 1, [&] { at::mm_out(out, a, a); });
  if (gpu) {
    findings.push_back(judge("GEMM", "tflops", "TFLOP/s in bf16", products * flop / 1e12, expected.gemm_tflops));
  } else {
    findings.push_back(judge("GEMM", "gflops", "GFLOP/s in fp32", products * flop / 1e9, 0));
  }
  const Tensor from = at::ones({trial.bytes}, at::TensorOptions().device(device).dtype(at::kByte)),
               to = at::empty_like(from);
  const double copies = calls_per_second(device, 0.2, gpu ? 10 : 1, [&] { to.copy_(from); });
  findings.push_back(judge("memory copy", "copy_gbs", "GB/s read and written",
                           2 * copies * static_cast<double>(trial.bytes) / 1e9, expected.copy_gbs));
  return findings;
}

std::vector<Finding> compare_ranks(const std::vector<RankFindings>& ranks, const std::string& check,
                                   const std::string& name, double least) {
  std::vector<std::pair<double, const RankFindings*>> rates;
  for (const RankFindings& rank : ranks) {
    for (const Finding& finding : rank.findings) {
      if (finding.check == check && finding.figures.contains(name)) rates.emplace_back(finding.figures.at(name), &rank);
    }
  }
  if (rates.size() < 2) return {};
  std::ranges::sort(rates, {}, [](const auto& rate) { return rate.first; });
  const double middle = rates[rates.size() / 2].first;
  std::vector<Finding> findings;
  for (const auto& [rate, rank] : rates) {
    if (rate >= least * middle) break;
    findings.push_back(
        {.check = check,
         .severity = Severity::kWarning,
         .fact = fmt::format("rank {} on {} reaches {:.3g}, the middle rank {:.3g} ({})", rank->rank, rank->host, rate,
                             middle, name),
         .remedy =
             "All ranks wait for the slowest: look at its clocks and at other processes on its node, or leave it out.",
         .figures = {{name, rate}, {"middle", middle}}});
  }
  return findings;
}

const std::vector<CommonFact>& common_facts() {
  static const std::vector<CommonFact> facts = {
      {"libraries", Severity::kError,
       "Install the same build of Titanium on all nodes, or start it from a shared file system."},
      {"driver", Severity::kWarning, "Install one version of the GPU's driver on all nodes, or leave the node out."},
      {"GPU", Severity::kWarning, "All ranks wait for the slowest: ask for nodes of one kind."},
      {"GPU count", Severity::kWarning,
       "A GPU may have failed or not be given to the job: see nvidia-smi and the kernel's log (Xid), or leave the node "
       "out."}};
  return facts;
}

std::vector<Finding> compare_facts(const std::vector<RankFindings>& ranks, const CommonFact& common) {
  std::vector<Finding> findings;
  std::optional<std::string> first;
  for (const RankFindings& rank : ranks) {
    for (const Finding& finding : rank.findings) {
      if (finding.check != common.check) continue;
      if (!first) first = finding.fact;
      if (finding.fact == *first) continue;
      findings.push_back({.check = common.check,
                          .severity = common.severity,
                          .fact = fmt::format("rank {} on {} has {}, rank {} has {}", rank.rank, rank.host,
                                              finding.fact, ranks[0].rank, *first),
                          .remedy = common.remedy});
    }
  }
  return findings;
}

}  // namespace titanium::doctor
