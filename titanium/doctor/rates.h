// How fast this rank's device multiplies and copies, and what it should reach.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "titanium/doctor/finding.h"
#include "titanium/tensor/tensor.h"

namespace titanium::doctor {

// The least that a healthy device of this name reaches in doctor's own measurement.
struct ExpectedRates {
  double gemm_tflops = 0;  // bf16
  double copy_gbs = 0;     // bytes read and written
  double bus_gbs = 0;      // of an all-reduce between the GPUs of one node over NVLink
};
// Nothing for a GPU that is not in the table.
std::optional<ExpectedRates> expected_rates(std::string_view gpu_name);

// Measures for about half a second: a matrix product and a copy; a GPU's health while it works, and its peer access.
std::vector<Finding> measure_device(Device device, int local_world_size);

// The figure `name` of the check `check`, compared between ranks: one that is well below the others is a warning that
// names it. `least` is the fraction of the middle rank's rate that is still fine.
std::vector<Finding> compare_ranks(const std::vector<RankFindings>& ranks, const std::string& check,
                                   const std::string& name, double least);

// What all ranks have to have in common: `severity` and `remedy` are those of a rank that has not.
struct CommonFact {
  std::string check;
  Severity severity;
  std::string remedy;
};
// Versions of libraries and drivers, number and kind of GPUs.
const std::vector<CommonFact>& common_facts();

// One finding for each rank whose fact of this check is not rank 0's.
std::vector<Finding> compare_facts(const std::vector<RankFindings>& ranks, const CommonFact& common);

}  // namespace titanium::doctor
