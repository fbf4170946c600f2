// Runs this rank's program of a pipeline schedule.
#pragma once

#include <deque>
#include <functional>
#include <map>

#include "titanium/comm/group.h"
#include "titanium/schedule/program.h"
#include "titanium/tensor/parameter.h"

namespace titanium::parallel {

// What a stage makes of one micro-batch: hidden states, or from the last stage a scalar that is to become small. The
// first stage's input is undefined.
using StageForward = std::function<Tensor(int stage, int micro_batch, const Tensor& input)>;

// Hidden states between stages, all of one shape.
struct HiddenStates {
  Shape shape;
  Dtype dtype = at::kFloat;
  Device device = at::kCPU;
};

// Note [Sends and receives]
// Programs stand in an order in which every wait ends (schedule/program.h). A receive is posted where it stands and
// waited for where the tensor is needed; a send is waited for when a few later ones are under way, so that its memory
// is free soon.
class PipelineRunner {
 public:
  // `group` is the pipeline axis: its ranks are those of the table. `parameters` are those of this rank's stages.
  PipelineRunner(const schedule::Table& table, comm::GroupPtr group, std::vector<Parameter*> parameters);

  // All actions of the table; one without backwards runs with gradients switched off. Gradients are added to those of
  // the parameters. Returns the sum of what the last stage has returned; undefined on ranks without it.
  Tensor run(const StageForward& forward, const HiddenStates& hidden) const;

 private:
  class Pass;
  comm::GroupPtr group_;
  std::vector<Parameter*> parameters_;
  std::vector<int> owner_;  // of each stage
  bool backward_;
  schedule::Program program_;
};

}  // namespace titanium::parallel
