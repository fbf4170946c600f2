// Reads a Python pickle, protocols 2 to 5, without Python and without running anything.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "titanium/checkpoint/pickle_value.h"

namespace titanium::checkpoint {

struct PickleLimits {
  size_t values = 200'000'000;  // counted as often as they are reached: a small file cannot unfold into a huge tree
  int depth = 200;
};

// The value of the one pickle that `bytes` are. `what` names the file in messages.
//
// A pickle is a program that may call any function. Here it is data: the classes that checkpoints of torch consist of
// are a closed list in the source, and what would be a call or an instance becomes an object with a name and arguments.
// A few of them become plain values: torch.Size a tuple, OrderedDict a dict, _codecs.encode(text, "latin1") bytes.
//
// Throws Error, with the position in the pickle, for: a class that is not on the list (named), an opcode of another
// protocol, lengths beyond the end, an integer beyond 64 bits, containers that contain themselves, too deep nesting,
// too many values, bytes after the end. Memory stays in proportion to the bytes.
PickleValue read_pickle(std::span<const std::byte> bytes, const std::string& what, const PickleLimits& limits = {});

}  // namespace titanium::checkpoint
