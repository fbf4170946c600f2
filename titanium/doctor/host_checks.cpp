#include "titanium/doctor/host_checks.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <climits>
#include <filesystem>
#include <memory>

#include "titanium/base/error.h"
#include "titanium/base/machine/usable_cores.h"

namespace titanium::doctor {
namespace {

constexpr double kMiB = 1 << 20;

std::string size_text(uint64_t bytes) {
  if (bytes == kUnlimited) return "unlimited";
  const auto mib = static_cast<double>(bytes) / kMiB;
  return mib < 1024 ? fmt::format("{:.4g} MiB", mib) : fmt::format("{:.4g} GiB", mib / 1024);
}

uint64_t limit_of(decltype(RLIMIT_NOFILE) resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnlimited;
  return limit.rlim_cur;
}

bool has_rdma_cards() {
  std::error_code none;
  return std::filesystem::exists("/sys/class/infiniband", none) &&
         !std::filesystem::is_empty("/sys/class/infiniband", none);
}

// Numeric; "" when the name cannot be resolved, and then `cause` says why.
std::string resolve(const std::string& name, std::string& cause, bool& loopback) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (const int error = ::getaddrinfo(name.c_str(), nullptr, &hints, &found); error != 0) {
    cause = ::gai_strerror(error);
    return "";
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> list(found, ::freeaddrinfo);
  char text[NI_MAXHOST] = "";
  ::getnameinfo(list->ai_addr, list->ai_addrlen, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  const std::string address = text;
  loopback = address.starts_with("127.") || address == "::1";
  return address;
}

Finding check_cores(const comm::Environment& environment) {
  const int cores = usable_cores();
  Finding finding{.check = "cores", .fact = fmt::format("{} for {} rank(s)", cores, environment.local_world_size)};
  if (cores < environment.local_world_size) {
    finding.severity = Severity::kWarning;
    finding.remedy =
        "Ranks wait for each other's cores: ask for at least one core per rank (--cpus-per-task, "
        "resources.requests.cpu).";
  }
  return finding;
}

}  // namespace

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = "";
  ::gethostname(name, HOST_NAME_MAX);
  return name;
}

Finding judge_open_files(uint64_t limit, int world_size) {
  const uint64_t needed = 512 + 8 * static_cast<uint64_t>(world_size);
  Finding finding{.check = "open files",
                  .fact = limit == kUnlimited ? "no limit" : fmt::format("limit {}", limit),
                  .figures = {{"limit", static_cast<double>(limit)}, {"needed", static_cast<double>(needed)}}};
  if (limit < needed) {
    finding.severity = Severity::kError;
    finding.fact += fmt::format(", but {} ranks may need {}", world_size, needed);
    finding.remedy =
        "Raise it where the ranks are started: ulimit -n 65536, or LimitNOFILE of the service or container.";
  }
  return finding;
}

Finding judge_locked_memory(uint64_t limit, bool has_rdma) {
  Finding finding{.check = "locked memory",
                  .fact = fmt::format("limit {}{}", size_text(limit), has_rdma ? ", network cards with RDMA" : ""),
                  .figures = {{"limit_bytes", static_cast<double>(limit)}}};
  constexpr uint64_t kLeast = 64 << 10;
  if (has_rdma && limit != kUnlimited) {
    finding.severity = Severity::kError;
    finding.remedy =
        "RDMA registers all its buffers: set ulimit -l unlimited, or add the capability IPC_LOCK to the container.";
  } else if (limit < kLeast) {
    finding.severity = Severity::kWarning;
    finding.remedy = "Pinned buffers may be refused: set ulimit -l unlimited where the ranks are started.";
  }
  return finding;
}

Finding judge_shared_memory(uint64_t free_bytes, uint64_t bytes, int local_ranks) {
  const uint64_t needed = static_cast<uint64_t>(local_ranks) * (32 << 20);
  Finding finding{.check = "shared memory",
                  .fact = fmt::format("/dev/shm has {}, {} free", size_text(bytes), size_text(free_bytes)),
                  .figures = {{"free_bytes", static_cast<double>(free_bytes)}}};
  if (free_bytes < needed) {
    finding.severity = Severity::kWarning;
    finding.fact += fmt::format(", but {} rank(s) of one node may need {}", local_ranks, size_text(needed));
    finding.remedy =
        "NCCL's ranks of one node exchange through it: run the container with --ipc host or --shm-size, or mount an "
        "emptyDir with "
        "medium Memory at /dev/shm.";
  }
  return finding;
}

Finding check_name(const std::string& name, const std::string& what, bool several_machines, bool needed) {
  std::string cause;
  bool loopback = false;
  const std::string address = resolve(name, cause, loopback);
  Finding finding{.check = "name resolution", .fact = fmt::format("{} {} is {}", what, name, address)};
  if (address.empty()) {
    finding.severity = needed ? Severity::kError : Severity::kWarning;
    finding.fact = fmt::format("{} {} cannot be resolved ({})", what, name, cause);
    finding.remedy = "Add it to DNS or /etc/hosts on all nodes, or use an IP address.";
  } else if (loopback && several_machines) {
    finding.severity = Severity::kWarning;
    finding.fact += ", which other machines cannot reach";
    finding.remedy =
        "Give the address of the network between the nodes, or set GLOO_SOCKET_IFNAME and NCCL_SOCKET_IFNAME to its "
        "interface.";
  }
  return finding;
}

std::vector<Finding> check_host(const comm::Environment& environment) {
  const bool several = environment.local_world_size < environment.world_size;
  std::vector<Finding> findings = {judge_open_files(limit_of(RLIMIT_NOFILE), environment.world_size),
                                   judge_locked_memory(limit_of(RLIMIT_MEMLOCK), has_rdma_cards())};
  if (environment.local_rank > 0) return findings;
  findings.push_back(check_cores(environment));
  struct statvfs room{};
  if (::statvfs("/dev/shm", &room) == 0) {
    findings.push_back(judge_shared_memory(static_cast<uint64_t>(room.f_bavail) * room.f_frsize,
                                           static_cast<uint64_t>(room.f_blocks) * room.f_frsize,
                                           environment.local_world_size));
  }
  findings.push_back(check_name(host_name(), "this machine's name", several, false));
  if (several) findings.push_back(check_name(environment.master_addr, "rank 0's host", true, true));
  return findings;
}

}  // namespace titanium::doctor
