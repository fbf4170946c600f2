// Texts of any length between the ranks of a group in host memory.
#pragma once

#include <string>
#include <vector>

#include "titanium/comm/group.h"

namespace titanium::comm {

// The texts of all ranks, in their order, on rank 0; nothing on the others.
std::vector<std::string> gather_texts(Group& group, const std::string& text);

// The text of rank 0, on all ranks.
std::string broadcast_text(Group& group, const std::string& text);

}  // namespace titanium::comm
