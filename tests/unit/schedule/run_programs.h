// A machine that runs the programs of all ranks under several rules for sends and receives.
#pragma once

#include "titanium/schedule/program.h"

namespace titanium::schedule {

// How sends and receives behave.
enum class Transport : uint8_t {
  kRendezvous,  // each blocks its rank until the partner has reached the other half: the weakest rule
  kPosted,      // neither blocks; between two ranks, transfers of both directions happen one by one as posted
  kBuffered,    // sends never block; a receive blocks until the message is there
};

// Runs the programs under the rule. Throws UsageError if they stop before the end, with the instruction at which each
// rank stands; if an action runs without its input; or if something is sent and not received.
void run_programs(const std::vector<Program>& programs, int stages, Transport transport);

}  // namespace titanium::schedule
