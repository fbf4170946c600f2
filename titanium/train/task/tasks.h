// All tasks by name. A new task is one pair of files and one line in tasks.cpp.
#pragma once

#include "titanium/train/task/task.h"

namespace titanium::train {

// The task that a model's specification names. One that does not exist is a bug.
const TaskSpec& find_task(std::string_view name);

}  // namespace titanium::train
