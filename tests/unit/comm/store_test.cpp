#include "titanium/comm/rendezvous/store.h"

#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cstdlib>
#include <iterator>
#include <sstream>
#include <thread>

#include "titanium/comm/connect.h"
#include "titanium/comm/error.h"
#include "titanium/comm/gloo.h"
#include "titanium/comm/rendezvous/job_store.h"
#include "titanium/comm/rendezvous/lifeline.h"
#include "titanium/comm/rendezvous/secret.h"

namespace titanium::comm {
namespace {

using std::chrono::milliseconds;

constexpr Patience kLong{milliseconds(20'000), milliseconds(20'000)}, kShort{milliseconds(300), milliseconds(300)};

TEST(Store, ClientsOfALocalStoreSeeTheSameValues) {
  Store host = Store::host_locally();
  EXPECT_EQ(host.address(), "127.0.0.1");
  Store client = Store::connect(host.address(), host.port(), kLong);
  EXPECT_FALSE(client.has("name"));
  host.set("name", "value");
  EXPECT_EQ(client.get("name", milliseconds(5000)), "value");  // waits until it has arrived
  EXPECT_TRUE(client.has("name"));
  EXPECT_EQ(client.add("count", 2), 2);
  EXPECT_EQ(host.add("count", 3), 5);
}

TEST(Store, TheFirstValueOfSetOnceStays) {
  Store store = Store::host_locally();
  EXPECT_EQ(store.set_once("failure", "first"), "first");
  EXPECT_EQ(store.set_once("failure", "second"), "first");
  EXPECT_EQ(store.get("failure", milliseconds(1000)), "first");
}

TEST(Store, WaitingForAMissingKeyEnds) {
  const Store store = Store::host_locally();
  EXPECT_THROW(store.get("never", milliseconds(100)), CommError);
}

TEST(Store, ATakenPortIsRefused) {
  const Store first = Store::host_locally();
  EXPECT_THROW(Store::host("127.0.0.1", first.port(), Reach::kThisMachine), UsageError);
}

// The sentence of a client that finds no store.
std::string search_error(const std::string& address, int port, const Patience& patience = kShort) {
  try {
    Store::connect(address, port, patience);
  } catch (const CommError& error) {
    return error.what();
  }
  return "connected";
}

int free_port() { return listen_at("127.0.0.1", 0, Reach::kThisMachine).port; }

TEST(Store, AMissingStoreIsAnErrorThatNamesItsPlace) {
  const int port = free_port();
  EXPECT_EQ(search_error("127.0.0.1", port),
            fmt::format("no store answers at 127.0.0.1:{} within 0.3 s: Connection refused.", port));
}

TEST(Store, AHostThatDoesNotExistIsNotWaitedForAsLongAsAStore) {
  const std::string message = search_error("no-such-host.invalid", 29500, {milliseconds(600'000), milliseconds(300)});
  EXPECT_TRUE(message.starts_with(
      "no store answers at no-such-host.invalid:29500 within 0.3 s: the host name cannot be resolved ("))
      << message;
}

TEST(Store, AHostThatDropsConnectionsIsNotWaitedForAsLongAsAStore) {
  const Listener full = listen_at("127.0.0.1", 0, Reach::kThisMachine);
  ASSERT_EQ(::listen(full.socket.get(), 0), 0);
  const FileDescriptor only = connect_to("127.0.0.1", full.port, milliseconds(5000));  // fills its queue
  EXPECT_EQ(search_error("127.0.0.1", full.port, {milliseconds(600'000), milliseconds(300)}),
            fmt::format("no store answers at 127.0.0.1:{} within 0.3 s: Connection timed out.", full.port));
}

TEST(Store, SomethingElseAtThePortIsNoStore) {
  const Listener silent = listen_at("127.0.0.1", 0, Reach::kThisMachine);
  const std::string patient = search_error("127.0.0.1", silent.port, {milliseconds(600'000), milliseconds(300)});
  EXPECT_EQ(patient, fmt::format("no store answers at 127.0.0.1:{} within 0.3 s: what listens there is no store (it "
                                 "answers with nothing).",
                                 silent.port));
  const Listener other = listen_at("127.0.0.1", 0, Reach::kThisMachine);
  const std::jthread greeter([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      const FileDescriptor client = accept_connection(other.socket);
      if (client.valid()) ::send(client.get(), "SSH-2.0-\x1bx\r\n", 12, MSG_NOSIGNAL);
      std::this_thread::sleep_for(milliseconds(10));
    }
  });
  const std::string message = search_error("127.0.0.1", other.port);
  EXPECT_NE(message.find("what listens there is no store (it answers with 'SSH-2.0-\\x1bx"), std::string::npos)
      << message;
}

TEST(Store, ListensAtTheAddressThatWasAskedForAndNoOther) {
  const Store store = Store::host("127.0.0.1", 0, Reach::kOtherMachines);
  EXPECT_NO_THROW(connect_to("127.0.0.1", store.port(), milliseconds(5000)));
  for (const char* other : {"127.0.0.2", "::1"})
    EXPECT_THROW(connect_to(other, store.port(), milliseconds(5000)), ConnectError);
}

TEST(Store, AnAddressOfAnotherMachineIsRefused) {
  try {
    Store::host("192.0.2.1", 29500, Reach::kOtherMachines);
    FAIL() << "opened";
  } catch (const UsageError& error) {
    EXPECT_STREQ(
        error.what(),
        "no store can be opened at 192.0.2.1:29500: 192.0.2.1 is not an address of this machine. Choose another "
        "port, and an address of this machine.");
  }
}

// /etc/hosts often calls a machine 127.0.1.1, and its peers mean another address.
TEST(Socket, ANameThatMeansLoopbackHereIsOpenToPeersElsewhere) {
  const Listener own = listen_at("localhost", 0, Reach::kThisMachine);
  EXPECT_TRUE(own.address == "127.0.0.1" || own.address == "::1") << own.address;
  const Listener open = listen_at("localhost", 0, Reach::kOtherMachines);
  EXPECT_EQ(open.address, "");
  EXPECT_NO_THROW(connect_to("127.0.0.2", open.port, milliseconds(5000)));
  EXPECT_EQ(listen_at("127.0.0.1", 0, Reach::kOtherMachines).address, "127.0.0.1");
  EXPECT_EQ(listen_towards("127.0.0.2", Reach::kThisMachine).address, "127.0.0.2");
}

TEST(Socket, KnowsItsAddressTowardsAHostButNotBehindANameOfLoopback) {
  EXPECT_TRUE(address_towards("127.0.0.2").starts_with("127.0.0.")) << address_towards("127.0.0.2");
  EXPECT_EQ(address_towards("localhost"), "");
  EXPECT_EQ(address_towards("no-such-host.invalid"), "");
}

TEST(Gloo, ListensAtTheGivenAddressUnlessTheUserNamesAnInterface) {
  EXPECT_NE(GlooNetwork("127.0.0.3").description().find("addr=[127.0.0.3]"), std::string::npos);
  ASSERT_EQ(::setenv("GLOO_SOCKET_IFNAME", "lo", 1), 0);
  const std::string chosen = GlooNetwork("127.0.0.3").description();
  ::unsetenv("GLOO_SOCKET_IFNAME");
  EXPECT_NE(chosen.find("addr=[127.0.0.1]"), std::string::npos) << chosen;
}

// Note [Strangers] in lifeline.h. Rank 1 is played by hand.
TEST(Connect, NothingInTheStoreOpensThePortOfRank0) {
  ConnectOptions options;
  options.environment.world_size = options.environment.local_world_size = 2;
  options.environment.master_port = free_port();
  std::unique_ptr<World> zero;
  std::jthread connecting([&, options] { zero = connect(options); });
  const Deadline deadline{kLong.for_start, "option"};
  Environment one = options.environment;
  one.rank = one.local_rank = 1;
  JobStore store(one, deadline);
  store.meet("arrived", "", {0, 1}, deadline, fingerprint_of("mine"));
  std::istringstream published(store.get("lifeline", deadline));
  const std::vector<std::string> words{std::istream_iterator<std::string>(published), {}};
  ASSERT_EQ(words.size(), 2U);
  const auto hello = [&](const std::string& secret, milliseconds timeout) {
    return std::make_unique<Lifeline>(1, std::vector{words[1]}, std::stoi(words[0]), secret, Patience{timeout, timeout},
                                      nullptr);
  };
  for (const std::string& known : {store.get("arrived/0", deadline), store.get("arrived/1", deadline)})
    EXPECT_THROW(hello(known, milliseconds(1)), Error);
  const auto lifeline = hello("mine", kLong.for_start);
  store.meet("connected", "", {0, 1}, deadline);
  connecting.join();
}

TEST(Store, AnEndedHostIsAnErrorOfItsClients) {
  auto host = std::make_unique<Store>(Store::host_locally());
  Store client = Store::connect(host->address(), host->port(), kLong);
  host.reset();
  EXPECT_THROW(client.has("name"), CommError);
}

}  // namespace
}  // namespace titanium::comm
