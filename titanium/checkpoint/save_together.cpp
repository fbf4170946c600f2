#include "titanium/checkpoint/save_together.h"

#include <algorithm>

#include "titanium/base/error.h"
#include "titanium/comm/text_collectives.h"

namespace titanium::checkpoint {
namespace {

namespace fs = std::filesystem;

// What a rank has to tell, or why it cannot go on.
struct Outcome {
  std::string text;
  bool failed = false;
};

std::string format(const Outcome& outcome) { return (outcome.failed ? '!' : '.') + outcome.text; }
Outcome parse(const std::string& text) { return {text.substr(1), text[0] == '!'}; }

template <typename Function>
Outcome outcome_of(const Function& function) {
  try {
    return {function()};
  } catch (const std::exception& error) {
    return {error.what(), /*failed=*/true};
  }
}

void throw_if_failed(const Outcome& outcome) {
  if (outcome.failed) throw Error(outcome.text);
}

// Rank 0 does something while the others wait for it; all learn whether it failed.
void on_first_rank(comm::Group& group, const std::function<void()>& function) {
  Outcome outcome;
  if (group.rank() == 0) {
    outcome = outcome_of([&] {
      function();
      return std::string();
    });
  }
  throw_if_failed(parse(comm::broadcast_text(group, format(outcome))));
}

}  // namespace

void save_together(comm::Group& group, const fs::path& root, int64_t step, const SaveWork& work) {
  const fs::path folder = writing_folder(root, step);
  on_first_rank(group, [&] {
    begin_step(root, step);
    if (work.prepare) work.prepare(folder);
  });
  const Outcome own = outcome_of([&] { return work.write(folder); });
  const std::vector<std::string> texts = comm::gather_texts(group, format(own));
  on_first_rank(group, [&] {
    try {
      std::vector<std::string> parts;
      for (size_t rank = 0; rank < texts.size(); ++rank) {
        const Outcome outcome = parse(texts[rank]);
        TI_CHECK(!outcome.failed, "{}{}", texts.size() > 1 ? fmt::format("rank {}: ", rank) : "", outcome.text);
        parts.push_back(outcome.text);
      }
      work.complete(folder, parts);
      publish_step(root, step);
    } catch (...) {
      abandon_step(root, step);
      throw;
    }
  });
}

}  // namespace titanium::checkpoint
