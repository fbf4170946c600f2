#include "titanium/comm/connect.h"

#include <signal.h>
#include <unistd.h>

#include <climits>
#include <map>
#include <numeric>
#include <sstream>

#include "titanium/base/log.h"
#include "titanium/comm/error.h"
#include "titanium/comm/fake.h"
#include "titanium/comm/gloo.h"
#include "titanium/comm/group_rank.h"
#include "titanium/comm/nccl.h"
#include "titanium/comm/rendezvous/secret.h"

namespace titanium::comm {
namespace {

std::string host_name() {
  char name[HOST_NAME_MAX + 1] = "";
  ::gethostname(name, HOST_NAME_MAX);
  return name;
}

// Gloo writes to connections that a dying peer has closed; by default the signal for that ends the process without a
// word. Python's interpreter ignores it from the start.
void ignore_broken_pipes() {
  struct sigaction action{};
  if (::sigaction(SIGPIPE, nullptr, &action) != 0 || action.sa_handler != SIG_DFL) return;
  action.sa_handler = SIG_IGN;
  ::sigaction(SIGPIPE, &action, nullptr);
}

class JobWorld : public World {
 public:
  explicit JobWorld(const ConnectOptions& options);
  ~JobWorld() override;

  int rank() const override { return options_.environment.rank; }
  int size() const override { return options_.environment.world_size; }
  GroupPtr group(const std::string& axis, const std::vector<int>& members) override {
    return make_group(axis, members, /*on_host=*/options_.device.is_cpu(), context_);
  }
  GroupPtr host_group(const std::string& axis, const std::vector<int>& members) override {
    return make_group(axis, members, /*on_host=*/true, context_);
  }
  GroupPtr patient_host_group(const std::string& axis, const std::vector<int>& members,
                              std::chrono::milliseconds timeout, const std::string& option) override {
    auto own = std::make_shared<GroupContext>(Deadline{timeout, option});
    own->set_lifeline(lifeline_);
    return make_group(axis, members, /*on_host=*/true, std::move(own));
  }
  void set_timeout(std::chrono::milliseconds timeout) override;
  void report_failure(const std::string& reason) override {
    if (lifeline_) lifeline_->report_failure(reason);
    if (hub_) hub_->wait_until_told(std::chrono::seconds(1));
  }

 private:
  std::vector<int> all_ranks() const;
  void hold_lifeline();
  GroupPtr make_group(const std::string& axis, const std::vector<int>& members, bool on_host,
                      std::shared_ptr<const GroupContext> context);

  ConnectOptions options_;
  std::shared_ptr<GroupContext> context_;
  std::unique_ptr<JobStore> store_;
  std::unique_ptr<GlooNetwork> network_;
  std::unique_ptr<LifelineHub> hub_;  // on rank 0; ends after this rank's own lifeline
  std::shared_ptr<Lifeline> lifeline_;
  std::vector<std::weak_ptr<C10dGroup>> groups_;
  std::map<std::string, int> groups_made_;
};

JobWorld::JobWorld(const ConnectOptions& options) : options_(options) {
  TI_ASSERT(rank() >= 0 && rank() < size(), "rank {} of {}", rank(), size());
  if (size() == 1 && !options_.connect_groups_of_one) return;
  ignore_broken_pipes();
  const Deadline deadline{options_.init_timeout, "comm.init_timeout_seconds"};
  context_ = std::make_shared<GroupContext>(deadline);
  store_ = std::make_unique<JobStore>(options_.environment, deadline);
  hold_lifeline();
  // The host name need not stand for the network between the nodes; what reaches rank 0 does.
  const bool several = reach_of(options_.environment) == Reach::kOtherMachines;
  network_ = std::make_unique<GlooNetwork>(several ? address_towards(options_.environment.master_addr) : "");
  log_debug("rank {} on {} uses {}", rank(), host_name(), network_->description());
}

JobWorld::~JobWorld() {
  if (std::uncaught_exceptions() > 0) report_failure("it ended with an exception");
}

std::vector<int> JobWorld::all_ranks() const {
  std::vector<int> ranks(size());
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

void JobWorld::hold_lifeline() {
  const Environment& environment = options_.environment;
  const Deadline deadline = context_->deadline();
  const std::string key = "lifeline", secret = make_secret();
  store_->meet("arrived", "", all_ranks(), deadline, fingerprint_of(secret));  // Note [Strangers]
  if (rank() == 0) {
    std::vector<std::string> fingerprints;
    for (const int rank : all_ranks()) fingerprints.push_back(store_->get(fmt::format("arrived/{}", rank), deadline));
    Listener listener = listen_towards(environment.master_addr, reach_of(environment));
    const std::string address = listener.address.empty() ? host_name() : listener.address;
    store_->set(key, fmt::format("{} {}", listener.port, address));
    hub_ = std::make_unique<LifelineHub>(std::move(fingerprints), std::move(listener));
  }
  std::istringstream published(store_->get(key, deadline));
  int port = 0;
  std::string host;
  published >> port >> host;
  if (published.fail() || port < 1 || port > 65535) {
    throw CommError(fmt::format(
        "rank {}: the store at {}:{} does not say where rank 0 listens. Let only the job's machines reach its port.",
        rank(), environment.master_addr, environment.master_port));
  }
  // Rank 0 lives at the master's address, unless an agent elsewhere hosts the store.
  const Patience patience{deadline.timeout,
                          std::min<std::chrono::milliseconds>(deadline.timeout, Patience::kUsualForHost)};
  lifeline_ = std::make_shared<Lifeline>(rank(), std::vector<std::string>{environment.master_addr, host}, port, secret,
                                         patience, options_.on_peer_failure);
  context_->set_lifeline(lifeline_);
  store_->meet("connected", "", all_ranks(), deadline);
}

void JobWorld::set_timeout(std::chrono::milliseconds timeout) {
  if (!context_) return;
  context_->set_deadline({timeout, "comm.train_timeout_seconds"});
  std::erase_if(groups_, [](const auto& group) { return group.expired(); });
  for (const auto& weak : groups_)
    if (const auto group = weak.lock()) group->set_timeout(timeout);
}

GroupPtr JobWorld::make_group(const std::string& axis, const std::vector<int>& members, bool on_host,
                              std::shared_ptr<const GroupContext> context) {
  const int place = group_rank(*this, members);
  if (members.size() == 1 && !options_.connect_groups_of_one) return make_fake_group(axis, place, members);
  const Deadline deadline = context_->deadline();
  const size_t identity = std::hash<std::string>()(fmt::format("{}", fmt::join(members, ",")));
  std::string key = fmt::format("group/{}/{}/{:x}", on_host ? "host" : "device", axis, identity);
  key += fmt::format("/{}", groups_made_[key]++);
  store_->meet(key, fmt::format(" for axis {}", axis), members, deadline);
  const bool common = context == context_;
  const GroupSpec spec{axis, place, members, store_->part(key, deadline), std::move(context)};
  const bool nccl = !on_host && options_.cuda_carrier == ConnectOptions::Carrier::kNccl;
  const std::shared_ptr<C10dGroup> group = nccl ? make_nccl_group(spec, options_.device) : network_->make_group(spec);
  if (common) groups_.push_back(group);
  return group;
}

}  // namespace

std::unique_ptr<World> connect(const ConnectOptions& options) { return std::make_unique<JobWorld>(options); }

}  // namespace titanium::comm
