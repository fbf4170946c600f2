#include "titanium/checkpoint/tensor_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "titanium/base/error.h"
#include "titanium/base/text/nearest_name.h"

namespace titanium::checkpoint {
namespace {

// Those of `names` that are not among `others`, in their order.
std::vector<std::string> without(const std::vector<std::string>& names, const std::vector<std::string>& others) {
  const std::set<std::string> known(others.begin(), others.end());
  std::vector<std::string> rest;
  std::ranges::copy_if(names, std::back_inserter(rest), [&](const auto& name) { return !known.contains(name); });
  return rest;
}

}  // namespace

void check_tensor_names(const std::string& place, const std::vector<std::string>& wanted,
                        const std::vector<std::string>& present) {
  const std::vector<std::string> missing = without(wanted, present);
  if (!missing.empty()) {
    const auto near = nearest_name(missing.front(), present);
    throw Error(fmt::format("{} lacks {} of the model's {} tensors, such as \"{}\"{}. {}", place, missing.size(),
                            wanted.size(), missing.front(), near ? fmt::format(" (the nearest is \"{}\")", *near) : "",
                            kOtherModel));
  }
  const std::vector<std::string> unexpected = without(present, wanted);
  TI_CHECK(unexpected.empty(), "{} has {} tensors that the model does not have, such as \"{}\". {}", place,
           unexpected.size(), unexpected.front(), kOtherModel);
}

}  // namespace titanium::checkpoint
