#include "titanium/train/propose_run.h"

#include <algorithm>
#include <limits>

#include "titanium/base/error.h"
#include "titanium/models/registry.h"
#include "titanium/train/check_run.h"

namespace titanium::train {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;
constexpr double kUsable = 0.94;
constexpr int64_t kLargestBatch = 8;

struct Layout {
  int64_t tensor = 1;
  int64_t pipeline = 1;
  int64_t experts = 1;
};

// From the one that communicates least to the one that cuts most.
std::vector<Layout> layouts(const ProposalRequest& request) {
  std::vector<Layout> list;
  for (int64_t pipeline = 1; pipeline <= 16; pipeline *= 2) {
    for (int64_t tensor = 1; tensor <= std::min<int64_t>(8, request.gpus_per_node); tensor *= 2) {
      if (request.gpus % (tensor * pipeline) != 0) continue;
      list.push_back({tensor, pipeline, 1});
      const int64_t experts = std::min<int64_t>(request.gpus_per_node, request.gpus / pipeline);
      if (tensor == 1 && experts > 1) list.push_back({tensor, pipeline, experts});
    }
  }
  return list;
}

struct Recomputation {
  const char* mode;
  const char* why;
};
constexpr Recomputation kRecomputations[] = {
    {"none", "everything fits without it, and nothing is computed twice"},
    {"selective", "without it the activations do not fit; only what is cheap to compute is computed again"},
    {"full",
     "the activations fit only when each block keeps no more than its input; this costs about a third more time"},
};

JobConfig base_config(const ProposalRequest& request) {
  JobConfig config;
  config.model.name = request.model;
  config.model.flavor = request.flavor;
  config.training.seq_len = request.seq_len;
  config.training.local_batch_size = 1;
  config.activation_checkpoint.selective_ac_option = "op";
  if (!draws_images(request)) return config;
  config.encoder.t5_encoder = "google/t5-v1_1-xxl";  // the one that the flavors are as wide as
  config.training.dataset = "cc12m-test";
  return config;
}

void apply(const Layout& layout, JobConfig& config) {
  config::Parallelism& degrees = config.parallelism;
  degrees.tensor_parallel_degree = layout.tensor;
  degrees.pipeline_parallel_degree = layout.pipeline;
  degrees.expert_parallel_degree = layout.experts;
  if (layout.pipeline > 1) {
    degrees.pipeline_parallel_schedule = "1F1B";
    config.training.local_batch_size = 2 * layout.pipeline;  // enough micro-batches to fill the pipeline
    degrees.pipeline_parallel_microbatch_size = 1;
  }
}

// Plans configurations and remembers what came nearest to fitting.
class Search {
 public:
  explicit Search(const ProposalRequest& request)
      : request_(request), room_(static_cast<int64_t>(kUsable * static_cast<double>(request.gpu_bytes))) {}

  // The plan of the rank that needs most, if all fit; nothing if they do not or the layout does not suit the model.
  std::optional<MemoryPlan> fits(const JobConfig& config) {
    std::optional<MemoryPlan> largest;
    try {
      for (const int rank : pipeline_ranks(config.parallelism, request_.gpus)) {
        const ModelPlan plan = plan_model(config, request_.gpus, rank);
        if (!largest || plan.memory.total() > largest->total()) largest = plan.memory;
        layout_ = describe(plan.dims);
      }
    } catch (const UsageError&) {
      return std::nullopt;
    }
    least_ = std::min(least_, largest->total());
    return largest->total() <= room_ ? largest : std::nullopt;
  }

  const std::string& layout() const { return layout_; }
  double least() const { return static_cast<double>(least_) / kGiB; }

 private:
  const ProposalRequest& request_;
  int64_t room_;
  int64_t least_ = std::numeric_limits<int64_t>::max();
  std::string layout_;
};

std::string why_layout(const Layout& layout, const ProposalRequest& request) {
  if (request.gpus == 1) return "one GPU holds everything";
  std::string text = "FSDP cuts parameters, gradients and optimizer states over the ranks";
  if (layout.experts > 1) text += "; the experts are spread over ranks, which each hold whole ones";
  if (layout.tensor > 1) text += "; matrices are cut inside a node as well, because activations would not fit";
  if (layout.pipeline > 1) text += "; layers are dealt to stages, because gathered layers would not fit";
  if (layout.tensor == 1 && layout.pipeline == 1 && layout.experts == 1) text += "; nothing else is needed";
  return text;
}

// Doubles the batch while it fits.
void grow_batch(Search& search, JobConfig& config, MemoryPlan& memory) {
  while (config.training.local_batch_size < kLargestBatch) {
    JobConfig larger = config;
    larger.training.local_batch_size *= 2;
    const auto plan = search.fits(larger);
    if (!plan) break;
    config = larger;
    memory = *plan;
  }
}

int64_t count_parameters(const JobConfig& config) {
  const std::unique_ptr<models::Model> model = models::build_model(config, config.training.seq_len);
  int64_t count = 0;
  for (const Parameter* parameter : model->parameters()) {
    int64_t elements = 1;
    for (const int64_t size : parameter->global_shape) elements *= size;
    count += elements;
  }
  return count;
}

std::string samples_of(const ProposalRequest& request, const config::Training& training) {
  return draws_images(request) ? fmt::format("images of {0} x {0} pixels", training.img_size)
                               : fmt::format("samples of {} tokens", training.seq_len);
}

}  // namespace

bool draws_images(const ProposalRequest& request) {
  return models::find_model(request.model).training.task == "images";
}

Proposal propose_run(const ProposalRequest& request) {
  Search search(request);
  Proposal proposal{.config = base_config(request)};
  proposal.parameters = static_cast<double>(count_parameters(proposal.config));  // also refuses what does not exist
  for (const char* dtype : {"float32", "bfloat16"}) {
    for (const Layout& layout : layouts(request)) {
      for (const Recomputation& recomputation : kRecomputations) {
        JobConfig config = proposal.config;
        apply(layout, config);
        config.training.dtype = dtype;
        config.activation_checkpoint.mode = recomputation.mode;
        auto memory = search.fits(config);
        if (!memory) continue;
        grow_batch(search, config, *memory);
        search.fits(config);  // so that the layout is of this one
        proposal.config = config;
        proposal.memory = *memory;
        proposal.layout = search.layout();
        proposal.samples = samples_of(request, config.training);
        proposal.why_layout = why_layout(layout, request);
        proposal.why_precision =
            config.training.dtype == "float32"
                ? "parameters and optimizer states in float32, products in bfloat16: the safe choice, and it fits"
                : "float32 parameters and states do not fit; these are in bfloat16 throughout";
        proposal.why_recomputation = recomputation.why;
        proposal.why_batch = layout.pipeline > 1 ? "two micro-batches for each stage keep the pipeline busy"
                                                 : "the largest power of two that fits, at most 8";
        return proposal;
      }
    }
  }
  throw UsageError(fmt::format(
      "{} {} with {} does not fit on {} GPUs of {:.1f} GiB in any layout: the least was {:.1f} GiB "
      "per GPU, and {:.0f} % of a GPU can be used. {}.",
      request.model, request.flavor, samples_of(request, proposal.config.training), request.gpus,
      static_cast<double>(request.gpu_bytes) / kGiB, search.least(), 100 * kUsable,
      draws_images(request) ? "Give more or larger GPUs" : "Give more GPUs, larger ones, or a smaller --seq-len"));
}

}  // namespace titanium::train
