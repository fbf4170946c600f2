// `titanium launch` without its command line: starts the processes of this node, again after a failure, and ends with
// the job.
#pragma once

#include "titanium/launch/options.h"

namespace titanium::launch {

// The exit code of the job: 0, or that of the first failure (128 + the signal's number for a killed process). Meanwhile
// SIGINT, SIGTERM, SIGHUP, SIGUSR1 and SIGUSR2 are the job's. To be called on the main thread, before there are others.
// Throws UsageError and Error when the nodes cannot meet.
int launch(const LaunchOptions& options, const Writer& write);

}  // namespace titanium::launch
