#include "titanium/comm/lifeline.h"

#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>

#include "titanium/base/error.h"

// The protocol, in lines of text. To the hub: `hello <secret> <rank>`, then `failed <reason>`, then `bye`. From the
// hub: `welcome`, then `news <sentence>`, then `bye`.

namespace titanium::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr std::string_view kHello = "hello ", kFailed = "failed ", kNews = "news ", kBye = "bye", kWelcome = "welcome";

// One descriptor per rank, besides those of everything else.
void allow_descriptors(int count) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = static_cast<rlim_t>(count) + 1024;
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

void poll_all(std::vector<pollfd>& descriptors, milliseconds timeout) {
  ::poll(descriptors.data(), descriptors.size(), static_cast<int>(timeout.count()));
}

constexpr milliseconds kForever(-1);
constexpr milliseconds kGreetingTime(2000);  // for one attempt at one host

}  // namespace

LifelineHub::LifelineHub(int size, std::string secret)
    : size_(size), secret_(std::move(secret)), listener_(listen_anywhere()) {
  allow_descriptors(size);
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
  wake_ = WakePipe();  // the old one stays readable
  const auto deadline = Clock::now() + goodbye_timeout;
  while (!failed_ && !all_left()) {
    const auto left = std::chrono::duration_cast<milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) break;
    poll_once(left);
  }
  for (const Peer& peer : peers_)
    if (!failed_) peer.socket.send(std::string(kBye));
}

void LifelineHub::poll_once(milliseconds timeout) {
  std::vector<pollfd> descriptors = {{wake_.read_end.get(), POLLIN, 0}, {listener_.socket.get(), POLLIN, 0}};
  for (const Peer& peer : peers_) descriptors.push_back({peer.socket.fd(), POLLIN, 0});
  poll_all(descriptors, timeout);
  for (size_t i = 0; i < peers_.size(); ++i)
    if (descriptors[i + 2].revents != 0) read(peers_[i]);
  std::erase_if(peers_, [](const Peer& peer) { return peer.left; });
  if (descriptors[1].revents != 0) {
    for (;;) {
      FileDescriptor next = accept_connection(listener_.socket);
      if (!next.valid()) break;
      peers_.push_back({.socket = LineSocket(std::move(next))});
    }
  }
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
    const std::string greeting = std::string(kHello) + secret_ + " ";
    int rank = -1;
    if (line.starts_with(greeting)) std::from_chars(line.data() + greeting.size(), line.data() + line.size(), rank);
    if (rank < 0 || rank >= size_) {
      peer.left = true;  // a stranger
      return;
    }
    peer.rank = rank;
    peer.socket.send(std::string(kWelcome));
  } else if (line.starts_with(kFailed)) {
    tell_all(peer.rank, fmt::format("rank {} failed: {}", peer.rank, line.substr(kFailed.size())));
  } else if (line == kBye) {
    peer.left = true;
  }
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

bool LifelineHub::all_left() const {
  return std::none_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.rank >= 0; });
}

Lifeline::Lifeline(int rank, const std::vector<std::string>& hosts, int port, const std::string& secret,
                   milliseconds timeout, std::function<void(std::string)> on_failure)
    : on_failure_(std::move(on_failure)) {
  const auto deadline = Clock::now() + timeout;
  const std::string hello = fmt::format("{}{} {}", kHello, secret, rank);
  std::string cause;
  for (;;) {
    for (const std::string& host : hosts)
      if (!socket_) socket_ = greet(host, port, hello, cause);
    if (socket_ || Clock::now() >= deadline) break;
    std::this_thread::sleep_for(milliseconds(100));
  }
  TI_CHECK(socket_, "rank {} cannot reach rank 0: {}.", rank, cause);
  thread_ = std::thread([this] { watch(); });
}

std::optional<LineSocket> Lifeline::greet(const std::string& host, int port, const std::string& hello,
                                          std::string& cause) const {
  try {
    LineSocket socket(connect_to(host, port, kGreetingTime));
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
  if (on_failure_ && !failed_) on_failure_(news);
  {
    const std::lock_guard lock(mutex_);
    news_ = news;
  }
  changed_.notify_all();
}

}  // namespace titanium::comm
