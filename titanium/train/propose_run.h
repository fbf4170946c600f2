// A configuration that fits: layout, precision, recomputation and batch for a model on GPUs that need not be here, by
// the memory plan.
#pragma once

#include <string>
#include <vector>

#include "titanium/train/train_state.h"

namespace titanium::train {

struct ProposalRequest {
  std::string model;
  std::string flavor;
  int64_t gpus = 8;
  int64_t gpus_per_node = 8;  // tensor parallelism stays inside a node
  int64_t gpu_bytes = 0;
  int64_t seq_len = 8192;  // of models of texts
};

// Throws UsageError for a model that is not there.
bool draws_images(const ProposalRequest& request);

struct Proposal {
  JobConfig config;
  MemoryPlan memory;      // of the rank that needs most
  double parameters = 0;  // of the whole model
  std::string layout;     // the degrees, in words for the log
  std::string samples;    // "samples of 8192 tokens"
  std::string why_layout;
  std::string why_precision;
  std::string why_recomputation;
  std::string why_batch;
};

// The first that fits of: as few ranks per sample as possible (FSDP alone, then experts over ranks, tensor parallelism,
// a pipeline), float32 parameters before bfloat16 ones, as little recomputation as possible, then as large a batch per
// rank as possible, at most 8. A share of 6 % of the memory is left to the allocator and to NCCL. Throws UsageError if
// nothing fits, with what came nearest, and for a model that is not there.
Proposal propose_run(const ProposalRequest& request);

}  // namespace titanium::train
