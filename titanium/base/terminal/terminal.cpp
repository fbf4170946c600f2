#include "titanium/base/terminal/terminal.h"

#include <atomic>
#include <cstdlib>

namespace titanium {
namespace {

std::atomic<bool> progress_silenced = false;

}  // namespace

bool colors_are_wanted() {
  const char* refused = std::getenv("NO_COLOR");
  return refused == nullptr || *refused == '\0';
}

bool progress_is_wanted() { return !progress_silenced; }

void silence_progress() { progress_silenced = true; }

}  // namespace titanium
