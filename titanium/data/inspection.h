// What a file or folder of training data holds, for people.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "titanium/data/record_source.h"

namespace titanium::data {

struct Inspection {
  struct Sample {
    std::string place;                // file and line, row or document
    std::optional<std::string> text;  // or the caption of a picture
    std::string image;                // format and size of a picture; empty: the record has none
    std::vector<int32_t> tokens;
    std::string problem;  // why it cannot be used; empty: it can
  };

  int64_t files = 0;
  int64_t bytes = 0;                       // on disk
  std::map<std::string, int64_t> formats;  // number of files of each
  std::optional<int64_t> records;          // none: to count them would mean reading everything
  std::optional<int64_t> tokens;           // of files that have tokens and say how many
  std::vector<Sample> samples;
};

struct InspectionOptions {
  ReadOptions reading{};  // whole_samples: also archives whose first sample has no picture
  int64_t samples = 3;
  bool count_all = false;  // read everything, if need be
};

// Archives whose first sample has a picture are read as samples of pictures with captions; --text-field of another
// member than .txt reads them as texts. Throws Error as RecordSource does.
Inspection inspect(const std::filesystem::path& path, const InspectionOptions& options);

}  // namespace titanium::data
