// The pictures of runs for their page, inside of its data.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "titanium/observe/run/run_folder.h"

namespace titanium::observe {

// Reads pictures until so many bytes of all runs together have been read, so that a page stays one that can be sent.
class PageImages {
 public:
  explicit PageImages(size_t bytes) : only_lists_(bytes == 0), room_(bytes) {}

  // [{"step", "images": [{"caption", "src"}]}], the latest step first; "src" is a data URL. A picture must be a whole
  // PNG file inside of the run's folder: nothing else of the machine can come onto the page. With no bytes at
  // all the list has every picture, without "src".
  nlohmann::ordered_json of_run(const RunFolder& run);
  // What is not shown of the last run, in sentences.
  const std::vector<std::string>& notes() const { return notes_; }

 private:
  bool only_lists_;  // without room for any
  size_t room_;
  std::vector<std::string> notes_;
};

}  // namespace titanium::observe
