#include "titanium/train/task/tasks.h"

#include "titanium/base/error.h"
#include "titanium/train/task/image_task.h"
#include "titanium/train/task/text_task.h"

namespace titanium::train {

const TaskSpec& find_task(std::string_view name) {
  static const std::vector<TaskSpec> tasks = {
      text_task(),
      image_task(),
  };
  const auto found = std::ranges::find(tasks, name, &TaskSpec::name);
  TI_ASSERT(found != tasks.end(), "a model's specification names the task \"{}\", which is not in train/task/tasks.cpp",
            name);
  return *found;
}

}  // namespace titanium::train
