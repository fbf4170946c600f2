// Runs this rank's program of a pipeline schedule.
#pragma once

#include <deque>
#include <functional>
#include <map>

#include "titanium/comm/group.h"
#include "titanium/ops/record.h"
#include "titanium/schedule/program.h"
#include "titanium/tensor/parameter.h"

namespace titanium::parallel {

using ops::Tensors;

// What a stage makes of one micro-batch: the tensors that the next stage takes, or from the last stage one scalar that
// is to become small. The first stage gets none.
using StageForward = std::function<Tensors(int stage, int micro_batch, const Tensors& inputs)>;

// A tensor that goes from each stage to the next. Gradients come back for those of floating point.
struct HiddenStates {
  Shape shape;
  Dtype dtype = at::kFloat;
  Device device = at::kCPU;
};

// Runs a forward and a backward that a table has paired to their ends, perhaps interleaved: Note [Taking turns].
using RunPair = std::function<void(const std::function<void()>& forward, const std::function<void()>& backward)>;

// Note [Sends and receives]
// Programs stand in an order in which every wait ends (schedule/program.h). A receive is posted where it stands and
// waited for where the tensor is needed; a send is waited for when a few later ones are under way, so that its memory
// is free soon.
class PipelineRunner {
 public:
  // `group` is the pipeline axis: its ranks are those of the table. `parameters` are those of this rank's stages.
  // Without `run_pair` the two of a pair run one after the other.
  PipelineRunner(const schedule::Table& table, comm::GroupPtr group, std::vector<Parameter*> parameters,
                 RunPair run_pair = {});

  // All actions of the table; one without backwards runs with gradients switched off. Gradients are added to those of
  // the parameters. `hidden` are the tensors between stages, in their order. Returns the sum of what the last stage has
  // returned; undefined on ranks without it.
  Tensor run(const StageForward& forward, const std::vector<HiddenStates>& hidden) const;

 private:
  class Pass;
  comm::GroupPtr group_;
  std::vector<Parameter*> parameters_;
  std::vector<int> owner_;  // of each stage
  bool backward_;
  schedule::Program program_;
  RunPair run_pair_;
};

}  // namespace titanium::parallel
