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

// Text i goes to rank i; returns those that all ranks have sent to this one, in their order.
std::vector<std::string> exchange_texts(Group& group, const std::vector<std::string>& texts);

}  // namespace titanium::comm
