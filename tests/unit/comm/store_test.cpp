#include "titanium/comm/store.h"

#include <gtest/gtest.h>

#include "titanium/comm/error.h"

namespace titanium::comm {
namespace {

using std::chrono::milliseconds;

TEST(Store, ClientsOfALocalStoreSeeTheSameValues) {
  Store host = Store::host_locally();
  EXPECT_EQ(host.address(), "127.0.0.1");
  Store client = Store::connect(host.address(), host.port(), milliseconds(5000));
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
  EXPECT_THROW(Store::host("127.0.0.1", first.port()), UsageError);
}

TEST(Store, AMissingHostIsAnErrorThatNamesIt) {
  const int port = Store::host_locally().port();  // free again
  try {
    Store::connect("127.0.0.1", port, milliseconds(300));
    FAIL() << "connected to nobody";
  } catch (const CommError& error) {
    EXPECT_NE(std::string(error.what()).find("127.0.0.1:" + std::to_string(port)), std::string::npos) << error.what();
  }
}

TEST(Store, AnEndedHostIsAnErrorOfItsClients) {
  auto host = std::make_unique<Store>(Store::host_locally());
  Store client = Store::connect(host->address(), host->port(), milliseconds(5000));
  host.reset();
  EXPECT_THROW(client.has("name"), CommError);
}

}  // namespace
}  // namespace titanium::comm
