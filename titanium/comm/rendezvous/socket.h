// Plain TCP over IPv4 and IPv6. No socket is inherited by programs that this process starts.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "titanium/base/error.h"
#include "titanium/base/files/file_descriptor.h"

namespace titanium::comm {

struct Listener {
  FileDescriptor socket;
  int port = 0;
  std::string address;  // numeric; empty: all addresses of this machine
};

// Who may connect.
enum class Reach {
  kThisMachine,    // all peers run here
  kOtherMachines,  // some run elsewhere
};

// Listens at `port` (0: a free one) of `host`, a name or address of this machine, and at no other address: what listens
// at 127.0.0.1 is out of reach for other machines. Only a name that means loopback here while peers run elsewhere, as
// /etc/hosts often has it, listens at all addresses, since they cannot mean the same. Throws Error when `host` is not
// this machine or the port is taken.
Listener listen_at(const std::string& host, int port, Reach reach);
// The same at a free port, but where `host` is another machine, at the address from which this one reaches it.
Listener listen_towards(const std::string& host, Reach reach);
// The numeric address from which this machine reaches `host`, which may be itself. Empty where that is not known:
// `host` cannot be resolved or reached, or is a name that means loopback here.
std::string address_towards(const std::string& host);

// The next connection, or an invalid descriptor when there is none or errno says why.
FileDescriptor accept_connection(const FileDescriptor& listener);

// No address of a host answers.
class ConnectError : public Error {
 public:
  ConnectError(const std::string& message, std::string cause, bool refused)
      : Error(message), cause(std::move(cause)), refused(refused) {}

  std::string cause;
  bool refused;  // the machine is there, but nobody listens at the port, maybe not yet
};

// Tries every address of `host` once, each for at most `timeout`, after at most as long to resolve the name. Throws
// ConnectError.
FileDescriptor connect_to(const std::string& host, int port, std::chrono::milliseconds timeout);

// Wakes a thread that polls `read_end`.
struct WakePipe {
  WakePipe();
  void wake() const;
  // Clears the wake-up: it is not readable until it is woken again.
  void drain() const;

  FileDescriptor read_end, write_end;
};

// A connection that carries lines of text. Neither function waits.
class LineSocket {
 public:
  static constexpr size_t kLongestLine = 64 * 1024;

  explicit LineSocket(FileDescriptor socket, size_t longest_line = kLongestLine)
      : socket_(std::move(socket)), longest_line_(longest_line) {}

  int fd() const { return socket_.get(); }
  void set_longest_line(size_t bytes) { longest_line_ = bytes; }
  // Line breaks inside `line` become spaces, and what is longer than kLongestLine is cut. What a peer that does not
  // read leaves no room for is lost.
  void send(std::string line) const;
  // Takes what has arrived, at most as much as the longest line; false when the peer has closed the connection, is
  // unreachable, or sends a longer line. All lines are to be taken before the next call.
  bool receive();
  // The next whole line that has arrived.
  bool next(std::string& line);

 private:
  FileDescriptor socket_;
  size_t longest_line_;
  std::string received_;
};

}  // namespace titanium::comm
