// Aimed fuzzing of everything that reads files: makes inputs (inputs.h), reads them in this process, and holds each
// against limits of processor time and memory. Built with the address and undefined-behaviour sanitizers:
//
//   ninja -C build-asan fuzz_readers && build-asan/fuzz_readers --inputs 1000000
//
// Ends with exit code 1 when an input broke a limit or a property; a sanitizer ends it at once. Both say the format and
// the number of the input, which `--format json --first 1234 --inputs 1` reads again.
#include <fmt/format.h>
#include <malloc.h>
#include <sys/time.h>

#include <csignal>
#include <cstdlib>
#include <ctime>
#include <new>
#include <numeric>
#include <span>

#include "tests/fuzz/readers.h"
#include "titanium/base/error.h"

extern "C" void __sanitizer_set_death_callback(void (*callback)());

namespace {

// What operator new has given out.
size_t allocated = 0, most_allocated = 0;

void* count(void* memory) {
  if (memory == nullptr) throw std::bad_alloc();
  allocated += malloc_usable_size(memory);
  most_allocated = std::max(most_allocated, allocated);
  return memory;
}

void discount(void* memory) {
  allocated -= memory == nullptr ? 0 : malloc_usable_size(memory);
  std::free(memory);
}

}  // namespace

void* operator new(size_t size) { return count(std::malloc(size)); }
void* operator new[](size_t size) { return count(std::malloc(size)); }
void* operator new(size_t size, const std::nothrow_t&) noexcept {
  void* memory = std::malloc(size);
  return memory == nullptr ? nullptr : count(memory);
}
void operator delete(void* memory) noexcept { discount(memory); }
void operator delete[](void* memory) noexcept { discount(memory); }
void operator delete(void* memory, size_t) noexcept { discount(memory); }
void operator delete[](void* memory, size_t) noexcept { discount(memory); }

namespace titanium::fuzz {
namespace {

constexpr double kMostSeconds = 2;     // of the processor, sanitizers included
constexpr int kLastSeconds = 60;       // after which the process is ended
constexpr size_t kAlways = 64 << 20;   // bytes that every input may take
constexpr size_t kBytesPerByte = 512;  // of the input, in addition

template <std::string (*make)(Choices&)>
Input one_file(Choices& choices) {
  return {{"input", make(choices)}};
}

struct Format {
  const char* name;
  Input (*make)(Choices&);
  void (*read)(const Input&);
};
constexpr Format kFormats[] = {{"pickle", one_file<make_pickle>, read_one_pickle},
                               {"json", one_file<make_json>, read_one_json},
                               {"toml", one_file<make_toml>, read_one_toml},
                               {"safetensors", one_file<make_safetensors>, read_one_safetensors},
                               {"csv", one_file<make_csv>, read_one_csv},
                               {"lines", make_lines, read_one_data_file},
                               {"tokens", make_token_files, read_one_data_file},
                               {"shards", make_shard, read_one_data_file},
                               {"archives", make_archive, read_one_data_file},
                               {"vocabularies", make_vocabulary, read_one_vocabulary},
                               {"flights", make_flights, read_one_flight},
                               {"runs", make_run, read_one_run}};

// --- The loop ---

const char* current_format = "";
uint64_t current_number = 0;

void say_where() {
  std::fprintf(stderr, "fuzz_readers: the input was --format %s --first %lu --inputs 1\n", current_format,
               current_number);
}

void end_by_time(int) {
  say_where();
  std::abort();
}

double processor_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Tally {
  uint64_t inputs = 0, accepted = 0, findings = 0;
  double slowest = 0;
  size_t largest = 0;  // bytes of memory
};

std::string finding_of(const Format& format, const Input& input, Tally& tally) {
  const size_t before = most_allocated = allocated;
  const double start = processor_seconds();
  const itimerval limit{.it_interval = {}, .it_value = {.tv_sec = kLastSeconds, .tv_usec = 0}};
  ::setitimer(ITIMER_PROF, &limit, nullptr);
  std::string finding;
  try {
    format.read(input);
    ++tally.accepted;
  } catch (const Error&) {  // the sentence that a user gets
  } catch (const std::exception& error) {
    finding = error.what();
  }
  const double seconds = processor_seconds() - start;
  const size_t memory = most_allocated - before;
  tally.slowest = std::max(tally.slowest, seconds);
  tally.largest = std::max(tally.largest, memory);
  if (finding.empty() && seconds > kMostSeconds) finding = fmt::format("{:.1f} s of the processor", seconds);
  const size_t size = std::accumulate(input.begin(), input.end(), size_t{0},
                                      [](size_t sum, const File& file) { return sum + file.content.size(); });
  if (finding.empty() && memory > kAlways + kBytesPerByte * size) {
    finding = fmt::format("{} MiB of memory for {} bytes", memory >> 20, size);
  }
  return finding;
}

Tally run(const Format& format, uint64_t first, uint64_t inputs) {
  Tally tally{.inputs = inputs};
  current_format = format.name;
  for (uint64_t number = first; number < first + inputs; ++number) {
    current_number = number;
    Choices choices(number);
    Input input = format.make(choices);
    std::string& victim = input[choices.below(input.size())].content;
    if (choices.one_in(4)) victim = damage(std::move(victim), choices);
    const std::string finding = finding_of(format, input, tally);
    if (finding.empty()) continue;
    ++tally.findings;
    fmt::print("{}\n", finding);
    std::fflush(stdout);
    say_where();
  }
  return tally;
}

int fuzz(std::span<char*> args) {
  uint64_t first = 1, inputs = 5000;
  std::string only;
  for (size_t i = 1; i + 1 < args.size(); i += 2) {
    const std::string option = args[i], value = args[i + 1];
    if (option == "--first") first = std::stoull(value);
    if (option == "--inputs") inputs = std::stoull(value);
    if (option == "--format") only = value;
  }
  __sanitizer_set_death_callback(say_where);
  std::signal(SIGPROF, end_by_time);
  uint64_t findings = 0;
  for (const Format& format : kFormats) {
    if (!only.empty() && only != format.name) continue;
    const Tally tally = run(format, first, only.empty() ? inputs / std::size(kFormats) : inputs);
    fmt::print("{:<12} {:>8} inputs, {:>8} accepted, slowest {:.2f} s, most memory {} MiB, {} findings\n", format.name,
               tally.inputs, tally.accepted, tally.slowest, tally.largest >> 20, tally.findings);
    std::fflush(stdout);
    findings += tally.findings;
  }
  return findings == 0 ? 0 : 1;
}

}  // namespace
}  // namespace titanium::fuzz

int main(int argc, char** argv) { return titanium::fuzz::fuzz({argv, static_cast<size_t>(argc)}); }
