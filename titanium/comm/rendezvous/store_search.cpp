#include "titanium/comm/rendezvous/store_search.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <thread>
#include <torch/csrc/distributed/c10d/TCPStoreBackend.hpp>

#include "titanium/base/text/printable.h"
#include "titanium/comm/error.h"
#include "titanium/comm/group_context.h"
#include "titanium/comm/rendezvous/socket.h"

namespace titanium::comm {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

struct Problem {
  std::string cause;
  bool refused = false;
};

// What every client of c10d sends first: its magic number, and a question that is answered with the number in it.
constexpr uint32_t kNumber = 0x7174616e;

std::string opening() {
  using c10d::detail::QueryType;
  std::string bytes;
  const auto add = [&](QueryType type, uint32_t number) {
    bytes += static_cast<char>(type);
    bytes.append(reinterpret_cast<const char*>(&number), sizeof number);
  };
  add(QueryType::VALIDATE, c10d::detail::validationMagicNumber);
  add(QueryType::PING, kNumber);
  return bytes;
}

// What has come until `deadline`, at most as much as `size`; less when the peer closes the connection.
std::string receive(const FileDescriptor& socket, size_t size, Clock::time_point deadline) {
  std::string answer;
  while (answer.size() < size) {
    pollfd waiting{socket.get(), POLLIN, 0};
    const auto left = std::chrono::ceil<milliseconds>(deadline - Clock::now());
    if (left.count() <= 0 || ::poll(&waiting, 1, static_cast<int>(left.count())) == 0) break;
    std::array<char, 64> buffer;
    const ssize_t count = ::recv(socket.get(), buffer.data(), std::min(buffer.size(), size - answer.size()), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    answer.append(buffer.data(), static_cast<size_t>(count));
  }
  return answer;
}

// Asks once; nothing when a store answers.
std::optional<Problem> ask(const std::string& address, int port, milliseconds timeout) {
  try {
    const FileDescriptor socket = connect_to(address, port, timeout);
    const std::string question = opening();
    const std::string expected(reinterpret_cast<const char*>(&kNumber), sizeof kNumber);
    ::send(socket.get(), question.data(), question.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    const std::string answer = receive(socket, expected.size(), Clock::now() + timeout);
    if (answer == expected) return std::nullopt;
    const std::string rest = receive(socket, 24, Clock::now() + milliseconds(100));
    const std::string sent = answer.empty() ? "nothing" : fmt::format("'{}'", printable(answer + rest));
    return Problem{fmt::format("what listens there is no store (it answers with {})", sent)};
  } catch (const ConnectError& error) {
    return Problem{error.cause, error.refused};
  }
}

}  // namespace

void wait_for_store(const std::string& address, int port, const Patience& patience) {
  constexpr milliseconds kLongestQuestion(5000), kPause(200);
  const auto begin = Clock::now();
  auto host_lost = begin;
  for (;;) {
    const auto end = std::min(begin + patience.for_start, host_lost + patience.for_host);
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now());
    const auto problem = ask(address, port, std::clamp(left, milliseconds(500), kLongestQuestion));
    if (!problem) return;
    const auto now = Clock::now();
    if (problem->refused) host_lost = now;
    if (now - begin >= patience.for_start || now - host_lost >= patience.for_host) {
      const auto waited = problem->refused ? patience.for_start : std::min(patience.for_start, patience.for_host);
      throw CommError(fmt::format("no store answers at {}:{} within {} s: {}.", address, port, seconds_text(waited),
                                  problem->cause));
    }
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace titanium::comm
