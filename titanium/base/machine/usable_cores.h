// The cores that this process may run on, which a container or a job of a cluster may limit.
#pragma once

namespace titanium {

int usable_cores();

}  // namespace titanium
