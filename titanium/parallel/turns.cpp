#include "titanium/parallel/turns.h"

#include <exception>
#include <thread>

#include "titanium/base/error.h"

namespace titanium::parallel {

void Turns::wait_for_turn(int side, std::unique_lock<std::mutex>& lock) {
  changed_.wait(lock, [&] { return turn_ == side; });
}

void Turns::work(int side, const std::function<void()>& piece) {
  {
    std::unique_lock lock(mutex_);
    wait_for_turn(side, lock);
  }
  std::exception_ptr error;
  try {
    piece();
  } catch (...) {
    error = std::current_exception();
  }
  const std::lock_guard lock(mutex_);
  --working_;
  turn_ = 1 - side;
  changed_.notify_all();
  if (error) std::rethrow_exception(error);
}

void Turns::run(const std::function<void()>& first, const std::function<void()>& second) {
  TI_ASSERT(working_ == 0, "a pair inside a pair");
  working_ = 2;
  turn_ = 0;
  std::exception_ptr error, error_of_second;
  std::thread beside([&] {
    try {
      work(1, second);
    } catch (...) {
      error_of_second = std::current_exception();
    }
  });
  try {
    work(0, first);
  } catch (...) {
    error = std::current_exception();
  }
  beside.join();
  if (error) std::rethrow_exception(error);
  if (error_of_second) std::rethrow_exception(error_of_second);
}

void Turns::pass() {
  std::unique_lock lock(mutex_);
  if (working_ < 2) return;
  const int side = turn_;
  turn_ = 1 - side;
  changed_.notify_all();
  wait_for_turn(side, lock);
}

}  // namespace titanium::parallel
