// Reads a Python pickle, protocols 2 to 5, without Python and without running anything.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "titanium/checkpoint/torch_file/pickle_value.h"

namespace titanium::checkpoint {

// How much the value may unfold into: values, and bytes of texts, counted as often as they are reached, because whoever
// walks through a value or prints it meets shared parts again and again.
struct PickleLimits {
  size_t always = size_t{1} << 18;  // is allowed
  size_t per_byte = 8;              // of the pickle, in addition; those of torch need less than 3
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
// a value that unfolds into too much, bytes after the end. Memory stays below 64 MiB and 512 bytes for each byte of the
// pickle, also for what is not part of the result.
PickleValue read_pickle(std::span<const std::byte> bytes, const std::string& what, const PickleLimits& limits = {});

// The value of the pickle at the front of `bytes`, which is taken away from them.
PickleValue read_first_pickle(std::span<const std::byte>& bytes, const std::string& what,
                              const PickleLimits& limits = {});

}  // namespace titanium::checkpoint
