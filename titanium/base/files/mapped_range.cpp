#include "titanium/base/files/mapped_range.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <mutex>

#include "titanium/base/text/printable.h"

// A handler may take no lock and allocate nothing, so the ranges stand in a table of fixed size. Files that find no
// place in it are only not named.

namespace titanium {
namespace {

struct Entry {
  std::atomic<uintptr_t> begin = 0;  // 0: free
  std::atomic<uintptr_t> end = 0;
  std::array<char, 512> name{};
};

std::array<Entry, 1024> table;
std::mutex table_mutex;  // of those who change it

void say(const char* text) { [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text, std::strlen(text)); }

void explain(int signal, siginfo_t* info, void*) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const Entry& entry : table) {
    const uintptr_t begin = entry.begin;
    if (begin == 0 || address < begin || address >= entry.end) continue;
    say("titanium: ");
    say(entry.name.data());
    say(" cannot be read any more: it became shorter while it was in use, or its disk failed. Leave files alone that a "
        "program reads, and start again.\n");
    ::_exit(1);
  }
  ::signal(signal, SIG_DFL);  // the same instruction follows, and ends the program
}

}  // namespace

MappedRange::MappedRange(std::span<const std::byte> memory, std::string_view name) : memory_(memory) {
  const std::string line = printable(name, 400);
  const std::lock_guard lock(table_mutex);
  for (Entry& entry : table) {
    if (memory.empty() || entry.begin != 0) continue;
    std::strncpy(entry.name.data(), line.c_str(), entry.name.size() - 1);
    const auto begin = reinterpret_cast<uintptr_t>(memory.data());
    entry.end = begin + memory.size();
    entry.begin = begin;
    return;
  }
}

MappedRange::~MappedRange() {
  const std::lock_guard lock(table_mutex);
  for (Entry& entry : table) {
    if (entry.begin == reinterpret_cast<uintptr_t>(memory_.data())) entry.begin = 0;
  }
}

void explain_lost_pages() {
  struct sigaction action{};
  action.sa_sigaction = explain;
  action.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &action, nullptr);
}

}  // namespace titanium
