// Runs a test body once per rank, each in a thread of its own.
#pragma once

#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "titanium/comm/world.h"

namespace titanium::test {

// A rank that throws destroys its world, so that its peers stop waiting. What the rank that failed first threw is
// thrown again here, after all threads have ended.
inline void run_ranks(int size, const std::function<void(comm::World&)>& body) {
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::thread> threads;
  for (std::unique_ptr<comm::World>& world : comm::make_threaded_worlds(size)) {
    threads.emplace_back([&, world = std::move(world)]() mutable {
      try {
        body(*world);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      world.reset();
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace titanium::test
