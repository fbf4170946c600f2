// Matrices that are cut over the ranks of a pipeline stage, each computed with by one owner.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "titanium/comm/world.h"
#include "titanium/optim/matrix_exchange.h"
#include "titanium/parallel/matrix_owners.h"

namespace titanium::parallel {

// Runs the rounds of Note [One owner per matrix]. While the owners compute with the matrices of a round, those of the
// next one are gathered, and the results of the last one travel back: two exchanges of each kind are under way at a
// time.
class OwnerExchange : public optim::MatrixExchange {
 public:
  // `parameters` are all that it will be asked for. They are placed, not materialised.
  OwnerExchange(const std::vector<Parameter*>& parameters, const ParallelDims& dims, int rank);

  // Makes the group of the stage; all ranks do so together, before the first run. Matrices are computed with on
  // `device`, wherever the parameters are.
  void connect(comm::World& world, Device device);

  void run(const std::vector<Parameter*>& parameters, const optim::MatrixWork& work) override;
  int64_t buffer_elements() const override;

 private:
  class Round;
  const MatrixPlan& plan_for(const std::vector<Parameter*>& parameters);

  ParallelDims dims_;
  int rank_;
  std::map<std::vector<Parameter*>, MatrixPlan> plans_;  // by what was asked for
  int64_t largest_ = 0;
  comm::GroupPtr group_;
  std::optional<Device> device_;
};

}  // namespace titanium::parallel
