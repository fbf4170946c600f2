#include "titanium/comm/rendezvous/lifeline.h"

#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "titanium/base/error.h"
#include "titanium/base/log.h"
#include "titanium/comm/group_context.h"
#include "titanium/comm/rendezvous/secret.h"

// The protocol, in lines of text. To the hub: `hello <rank> <secret>`, then `failed <reason>`, then `bye`. From the
// hub: `welcome`, then `news <sentence>`, then `bye`.

namespace titanium::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::string_view kHello = "hello ", kFailed = "failed ", kNews = "news ", kBye = "bye", kWelcome = "welcome";

// One descriptor per rank, as many for strangers, besides those of everything else.
void allow_descriptors(size_t count) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = 2 * count + 1024;
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void poll_all(std::vector<pollfd>& descriptors, milliseconds timeout) {
  ::poll(descriptors.data(), descriptors.size(), static_cast<int>(timeout.count()));
}

constexpr milliseconds kForever(1 << 30);
constexpr milliseconds kConnectTime(2000);       // for one attempt at one host
constexpr milliseconds kGreetingTime(10'000);    // from a hello to its welcome
constexpr milliseconds kPauseOfAccepting(1000);  // when the process has no descriptors left
constexpr size_t kLongestGreeting = 256;         // bytes
constexpr size_t kStrangersBesideRanks = 16;     // all ranks may come at once, and a few others

}  // namespace

LifelineHub::LifelineHub(std::vector<std::string> fingerprints, Listener listener, milliseconds greeting_time)
    : fingerprints_(std::move(fingerprints)),
      listener_(std::move(listener)),
      greeting_time_(greeting_time),
      greeted_(fingerprints_.size()) {
  allow_descriptors(fingerprints_.size());
  thread_ = std::thread([this] { serve(); });
}

LifelineHub::~LifelineHub() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.wake();
  thread_.join();
}

void LifelineHub::serve() {
  const auto closing = [this] {
    const std::lock_guard lock(mutex_);
    return closing_;
  };
  while (!closing()) poll_once(kForever);
  wake_.drain();
  const auto deadline = Clock::now() + goodbye_timeout;
  while (!failed_ && !all_left()) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) break;
    poll_once(left);
  }
  for (const Peer& peer : peers_)
    if (!failed_) peer.socket.send(std::string(kBye));
}

void LifelineHub::poll_once(milliseconds timeout) noexcept {
  try {
    serve_peers(timeout);
  } catch (const std::exception& error) {
    log_warning("rank 0 cannot look after the other ranks for a moment: {}", error.what());
    std::this_thread::sleep_for(milliseconds(100));
  }
}

void LifelineHub::serve_peers(milliseconds timeout) {
  const Time begin = Clock::now();
  const bool accepts = accepting(begin);
  std::vector<pollfd> descriptors = {{wake_.read_end.get(), POLLIN, 0},
                                     {accepts ? listener_.socket.get() : -1, POLLIN, 0}};
  for (const Peer& peer : peers_) descriptors.push_back({peer.socket.fd(), POLLIN, 0});
  poll_all(descriptors, std::min(timeout, std::chrono::ceil<milliseconds>(next_deadline(begin) - begin)));
  for (size_t i = 0; i < peers_.size(); ++i)
    if (descriptors[i + 2].revents != 0) read(peers_[i]);
  const Time now = Clock::now();
  std::erase_if(peers_,
                [&](const Peer& peer) { return peer.left || (peer.rank < 0 && now >= peer.greeting_deadline); });
  if (descriptors[1].revents != 0) accept_strangers();
}

// See Note [Strangers].
void LifelineHub::accept_strangers() {
  while (accepting(Clock::now())) {
    FileDescriptor next = accept_connection(listener_.socket);
    if (next.valid()) {
      peers_.push_back({LineSocket(std::move(next), kLongestGreeting), Clock::now() + greeting_time_});
      continue;
    }
    if (errno == EINTR || errno == ECONNABORTED) continue;
    // Out of descriptors or memory: the connection stays readable, and asking again at once would be a busy loop.
    if (errno != EAGAIN && errno != EWOULDBLOCK) accept_after_ = Clock::now() + kPauseOfAccepting;
    return;
  }
}

bool LifelineHub::accepting(Time now) const {
  return listener_.socket.valid() && now >= accept_after_ && strangers() < fingerprints_.size() + kStrangersBesideRanks;
}

// When to look again though nothing has arrived.
LifelineHub::Time LifelineHub::next_deadline(Time now) const {
  Time next = now + kForever;
  if (listener_.socket.valid() && accept_after_ > now) next = accept_after_;
  for (const Peer& peer : peers_)
    if (peer.rank < 0) next = std::min(next, peer.greeting_deadline);
  return std::max(next, now);
}

void LifelineHub::read(Peer& peer) {
  const bool open = peer.socket.receive();
  std::string line;
  while (!peer.left && peer.socket.next(line)) handle(peer, line);
  if (open || peer.left) return;
  peer.left = true;
  if (peer.rank >= 0) tell_all(peer.rank, fmt::format("rank {} died", peer.rank));
}

void LifelineHub::handle(Peer& peer, const std::string& line) {
  if (peer.rank < 0) {
    greet(peer, line);
  } else if (line.starts_with(kFailed)) {
    tell_all(peer.rank, fmt::format("rank {} failed: {}", peer.rank, line.substr(kFailed.size())));
  } else if (line == kBye) {
    peer.left = true;
  }
}

// The rank that says hello, if it is that one.
std::optional<size_t> LifelineHub::rank_of(const std::string& line) const {
  if (!line.starts_with(kHello)) return std::nullopt;
  size_t rank = 0;
  const char* end = line.data() + line.size();
  const auto [space, error] = std::from_chars(line.data() + kHello.size(), end, rank);
  if (error != std::errc() || space == end || rank >= fingerprints_.size()) return std::nullopt;
  if (*space != ' ' || fingerprint_of({space + 1, end}) != fingerprints_[rank]) return std::nullopt;
  return rank;
}

void LifelineHub::greet(Peer& peer, const std::string& line) {
  const std::optional<size_t> rank = rank_of(line);
  if (!rank || greeted_[*rank]) {
    peer.left = true;  // a stranger
    return;
  }
  peer.rank = static_cast<int>(*rank);
  peer.socket.set_longest_line(LineSocket::kLongestLine);
  peer.socket.send(std::string(kWelcome));
  greeted_[*rank] = true;
  if (std::find(greeted_.begin(), greeted_.end(), false) == greeted_.end()) listener_.socket = FileDescriptor();
}

void LifelineHub::tell_all(int failed_rank, const std::string& news) {
  if (std::exchange(failed_, true)) return;  // what follows are consequences
  const std::string line = std::string(kNews) + news;
  // This process last: its handler may end it before the others have been told.
  for (const bool here : {false, true})
    for (const Peer& peer : peers_)
      if (peer.rank >= 0 && (peer.rank == 0) == here && peer.rank != failed_rank) peer.socket.send(line);
  {
    const std::lock_guard lock(mutex_);
    told_ = true;
  }
  changed_.notify_all();
}

void LifelineHub::wait_until_told(milliseconds timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [this] { return told_; });
}

bool LifelineHub::all_left() const { return strangers() == peers_.size(); }

size_t LifelineHub::strangers() const {
  return static_cast<size_t>(
      std::count_if(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.rank < 0; }));
}

Lifeline::Lifeline(int rank, const std::vector<std::string>& hosts, int port, const std::string& secret,
                   const Patience& patience, std::function<void(std::string)> on_failure)
    : on_failure_(std::move(on_failure)) {
  const auto begin = Clock::now();
  auto host_lost = begin;
  const std::string hello = fmt::format("{}{} {}", kHello, rank, secret);
  for (;;) {
    std::string cause;
    bool connected = false;
    for (const std::string& host : hosts)
      if (!socket_) socket_ = greet(host, port, hello, cause, connected);
    if (socket_) break;
    const auto now = Clock::now();
    if (connected) host_lost = now;
    TI_CHECK(
        now - begin < patience.for_start && now - host_lost < patience.for_host,
        "rank {} cannot reach rank 0 within {} s: {}. Check the network and its firewalls: rank 0 listens at a free "
        "port besides MASTER_PORT.",
        rank, seconds_text(connected ? patience.for_start : std::min(patience.for_start, patience.for_host)), cause);
    std::this_thread::sleep_for(milliseconds(100));
  }
  thread_ = std::thread([this] { watch(); });
}

std::optional<LineSocket> Lifeline::greet(const std::string& host, int port, const std::string& hello,
                                          std::string& cause, bool& connected) const {
  try {
    LineSocket socket(connect_to(host, port, kConnectTime));
    connected = true;
    socket.send(hello);
    const auto deadline = Clock::now() + kGreetingTime;
    std::string answer;
    for (bool open = true; open && !socket.next(answer) && Clock::now() < deadline; open = socket.receive()) {
      std::vector<pollfd> descriptors = {{socket.fd(), POLLIN, 0}};
      poll_all(descriptors, std::chrono::ceil<milliseconds>(deadline - Clock::now()));
    }
    socket.next(answer);
    if (answer == kWelcome) return socket;
    cause = fmt::format("{}:{} does not answer as rank 0", host, port);
  } catch (const Error& error) {
    cause = error.what();
  }
  return std::nullopt;
}

Lifeline::~Lifeline() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  wake_.wake();
  thread_.join();
  socket_->send(std::string(kBye));
}

void Lifeline::report_failure(const std::string& reason) {
  failed_ = true;
  socket_->send(std::string(kFailed) + reason);
}

std::optional<std::string> Lifeline::wait_for_news(milliseconds timeout) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, timeout, [this] { return news_.has_value(); });
  return news_;
}

void Lifeline::watch() {
  for (;;) {
    std::vector<pollfd> descriptors = {{wake_.read_end.get(), POLLIN, 0}, {socket_->fd(), POLLIN, 0}};
    poll_all(descriptors, kForever);
    {
      const std::lock_guard lock(mutex_);
      if (closing_) return;
    }
    const bool open = socket_->receive();
    std::string line;
    while (socket_->next(line)) {
      if (line == kBye) return;
      if (line.starts_with(kNews)) return tell(line.substr(kNews.size()));
    }
    if (!open) return tell("rank 0 died");
  }
}

void Lifeline::tell(const std::string& news) {
  // A rank that has failed itself ends for its own reason: that its peers follow is no news.
  try {
    if (on_failure_ && !failed_) on_failure_(news);
  } catch (const std::exception& error) {
    log_error("{}, and what should follow failed too: {}", news, error.what());
  }
  {
    const std::lock_guard lock(mutex_);
    news_ = news;
  }
  changed_.notify_all();
}

}  // namespace titanium::comm
