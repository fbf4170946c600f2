#include "titanium/comm/rendezvous/store.h"

#include <c10/util/Logging.h>

#include <cstdlib>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include "titanium/comm/error.h"

namespace titanium::comm {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

std::vector<uint8_t> to_bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string to_text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

// c10d's messages carry a stack; the first line says what happened.
std::string first_line(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

// A store at a socket of ours: c10d by itself would open the port on every interface.
c10d::TCPStoreOptions host_options(Listener listener) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(listener.port);
  options.masterListenFd = listener.socket.release();
  options.isServer = true;
  options.waitWorkers = false;
  return options;
}

}  // namespace

struct Store::Connection {
  Connection(const std::string& address, const c10d::TCPStoreOptions& options) : tcp(address, options) {}

  template <typename Call>
  auto guarded(Call call) {
    try {
      return call();
    } catch (const c10::Error& error) {
      throw CommError(
          fmt::format("the store at {}:{} does not answer: {}", tcp.getHost(), tcp.getPort(), first_line(error)));
    }
  }

  c10d::TCPStore tcp;
};

Store::Store(std::unique_ptr<Connection> connection) : connection_(std::move(connection)) {}
Store::Store(Store&&) noexcept = default;
Store::~Store() = default;

Store Store::host(const std::string& address, int port, Reach reach) {
  try {
    return Store(std::make_unique<Connection>(address, host_options(listen_at(address, port, reach))));
  } catch (const c10::Error& error) {
    throw UsageError(fmt::format("no store can be opened at {}:{}: {}", address, port, first_line(error)));
  } catch (const Error& error) {
    throw UsageError(
        fmt::format("no store can be opened at {}:{}: {}. Choose another port, and an address of this machine.",
                    address, port, error.what()));
  }
}

Store Store::host_locally() { return host(kLoopback, 0, Reach::kThisMachine); }

Store Store::connect(const std::string& address, int port, const Patience& patience) {
  wait_for_store(address, port, patience);
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.waitWorkers = false;
  try {
    return Store(std::make_unique<Connection>(address, options));
  } catch (const c10::Error& error) {
    throw CommError(fmt::format("the store at {}:{} is gone: {}", address, port, first_line(error)));
  }
}

const std::string& Store::address() const { return connection_->tcp.getHost(); }
int Store::port() const { return connection_->tcp.getPort(); }

void Store::set(const std::string& key, const std::string& value) {
  connection_->guarded([&] { connection_->tcp.set(key, to_bytes(value)); });
}

std::string Store::set_once(const std::string& key, const std::string& value) {
  return connection_->guarded([&] { return to_text(connection_->tcp.compareSet(key, {}, to_bytes(value))); });
}

bool Store::has(const std::string& key) const {
  return connection_->guarded([&] { return connection_->tcp.check({key}); });
}

std::string Store::get(const std::string& key, std::chrono::milliseconds timeout) const {
  return connection_->guarded([&] {
    connection_->tcp.wait({key}, timeout);
    return to_text(connection_->tcp.get(key));
  });
}

int64_t Store::add(const std::string& key, int64_t amount) {
  return connection_->guarded([&] { return connection_->tcp.add(key, amount); });
}

void silence_lost_connections() {
  if (std::getenv("TORCH_CPP_LOG_LEVEL") == nullptr) FLAGS_caffe2_log_level = c10::GLOG_ERROR;
}

}  // namespace titanium::comm
