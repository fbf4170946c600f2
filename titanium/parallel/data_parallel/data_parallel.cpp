#include "titanium/parallel/data_parallel/data_parallel.h"

#include "titanium/base/error.h"
#include "titanium/parallel/placement.h"

namespace titanium::parallel {

DataParallelGroups data_parallel_groups(const nn::Unit& unit, const Mesh& mesh) {
  const ViewAxes& axes = axes_of_view(unit.parameters.at(0)->view, mesh.dims());
  for (const Parameter* parameter : unit.parameters) {
    TI_ASSERT(&axes_of_view(parameter->view, mesh.dims()) == &axes,
              "{} lives in another view of the ranks than the rest of {}", parameter->fqn, unit.name);
    TI_ASSERT(mesh.size(axes.shard) == 1 || is_cut_by(*parameter, axes.shard), "{} is not sharded", parameter->fqn);
  }
  return {mesh.group(axes.shard), mesh.group(axes.replicate)};
}

}  // namespace titanium::parallel
