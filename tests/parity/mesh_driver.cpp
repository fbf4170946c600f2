// Prints the groups of every rank, for mesh.py: lines of "<axis> <rank> <members...>".
//
//   mesh_driver <pp> <dp_replicate> <dp_shard> <cp> <tp> <ep> <etp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "titanium/parallel/parallel_dims.h"

int main(int argc, char** argv) {
  using namespace titanium::parallel;
  if (argc != 8) return 2;
  const auto degree = [&](int i) { return std::atoll(argv[i]); };
  const ParallelDims dims = {.pp = degree(1),
                             .dp_replicate = degree(2),
                             .dp_shard = degree(3),
                             .cp = degree(4),
                             .tp = degree(5),
                             .ep = degree(6),
                             .etp = degree(7)};
  for (const std::string& axis : axis_names()) {
    for (int rank = 0; rank < dims.world(); ++rank) {
      fmt::print("{} {} {}\n", axis, rank, fmt::join(axis_members(dims, axis, rank), " "));
    }
  }
  return 0;
}
