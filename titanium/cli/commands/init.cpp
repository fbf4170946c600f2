// titanium init: writes a configuration that fits the GPUs that are named, with the reason for each choice.
#include <filesystem>

#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/cli/command_line.h"
#include "titanium/train/known_gpus.h"
#include "titanium/train/propose_run.h"

namespace titanium::cli {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

struct InitArguments {
  train::ProposalRequest run;
  std::string gpu;
  double gpu_memory = 80;
  std::string tokenizer;
  std::string data;
  std::string out = "run.toml";
  bool force = false;
};

bool read_arguments(Arguments args, InitArguments& init) {
  CommandLine app(
      "Writes a commented configuration for a model on GPUs that need not be here. Layout, precision, recomputation "
      "and "
      "batch are the first choice that fits by the memory plan; each comes with its reason.",
      "init");
  app.option("--model", init.run.model, "Family of the model").shows_default();
  app.option("--flavor", init.run.flavor, "Size of the model").shows_default();
  app.option("--gpus", init.run.gpus, "GPUs of the whole run").between(1, 1 << 20).shows_default();
  app.option("--gpus-per-node", init.run.gpus_per_node, "GPUs of a machine").between(1, 1024).shows_default();
  const auto gpu = app.option("--gpu", init.gpu, "Name of the GPU: " + train::known_gpu_names());
  app.option("--gpu-memory", init.gpu_memory, "Memory of a GPU in GiB, where it has no name here")
      .positive()
      .excludes(gpu)
      .shows_default();
  app.option("--seq-len", init.run.seq_len, "Tokens per sample of a text").positive().shows_default();
  app.option("--tokenizer", init.tokenizer, "Folder or hf:// address (default: the bundled sample)");
  app.option("--data", init.data, "File, folder or address of texts (default: the bundled sample)");
  app.option("--out", init.out, "The file to write").shows_default();
  app.flag("--force", init.force, "Replace the file if it is there");
  return app.parse(args);
}

std::string quoted(const std::string& text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') result += '\\';
    result += c;
  }
  return result + "\"";
}

std::string data_lines(const InitArguments& args, const config::Training& training) {
  if (args.data.empty()) {
    const std::string name = fmt::format("dataset = \"{}\"", training.dataset);
    return fmt::format("{:<33}# the bundled sample; for your own {}: dataset_path = \"FOLDER\"\n", name,
                       draws_images(args.run) ? "archives" : "texts");
  }
  return fmt::format("dataset = \"own\"                  # only a label beside dataset_path\ndataset_path = {}\n",
                     quoted(args.data));
}

std::string encoder_lines(const config::Encoder& encoder) {
  return fmt::format(
      "\n[encoder]\n# These come from the Hugging Face hub when the run starts.\nt5_encoder = {}\nclip_encoder = {}\n"
      "# titanium download --repo_id black-forest-labs/FLUX.1-dev --additional_patterns ae.safetensors\n"
      "autoencoder_path = \"./assets/hf/FLUX.1-dev/ae.safetensors\"\n",
      quoted(encoder.t5_encoder), quoted(encoder.clip_encoder));
}

std::string model_lines(const InitArguments& args, const JobConfig& config) {
  const std::string head =
      fmt::format("[model]\nname = {}\nflavor = {}\n", quoted(args.run.model), quoted(args.run.flavor));
  if (draws_images(args.run)) return head + encoder_lines(config.encoder);
  const std::string note =
      args.tokenizer.empty()
          ? "# The bundled sample tokenizer. For the model's own: titanium download --repo_id OWNER/NAME --assets "
            "tokenizer config\n# and hf_assets_path = \"./assets/hf/NAME\".\n"
          : "";
  return fmt::format("{}{}hf_assets_path = {}\n", head, note,
                     quoted(args.tokenizer.empty() ? config.model.hf_assets_path : args.tokenizer));
}

std::string layout_lines(const train::Proposal& proposal) {
  const config::Parallelism& degrees = proposal.config.parallelism;
  std::string text = fmt::format(
      "# Layout: {}.\n[parallelism]\ndata_parallel_shard_degree = -1   # all ranks that the other degrees leave\n",
      proposal.why_layout);
  text += fmt::format("tensor_parallel_degree = {}\npipeline_parallel_degree = {}\n", degrees.tensor_parallel_degree,
                      degrees.pipeline_parallel_degree);
  if (degrees.pipeline_parallel_degree > 1)
    text += "pipeline_parallel_schedule = \"1F1B\"\npipeline_parallel_microbatch_size = 1\n";
  if (degrees.expert_parallel_degree > 1)
    text += fmt::format("expert_parallel_degree = {}\n", degrees.expert_parallel_degree);
  return text;
}

// The last checkpoint of a model of texts is one that titanium generate reads without further options.
std::string checkpoint_lines(bool images) {
  const std::string text = "[checkpoint]\nenable = true\ninterval = 500\n";
  if (images) return text + "\n";
  return text +
         "last_save_in_hf = true           # the last checkpoint for titanium generate and transformers; to train for "
         "more\n#                                  steps later, last_save_model_only = false instead\n\n";
}

std::string command_line(const InitArguments& args) {
  const int64_t nodes = (args.run.gpus + args.run.gpus_per_node - 1) / args.run.gpus_per_node;
  if (args.run.gpus == 1) return fmt::format("titanium train --job.config_file {}", args.out);
  return fmt::format("titanium launch --nproc-per-node {}{} -- train --job.config_file {}",
                     std::min(args.run.gpus, args.run.gpus_per_node),
                     nodes > 1 ? fmt::format(" --nnodes {} --node-rank N --rdzv-endpoint HOST:29500", nodes) : "",
                     args.out);
}

std::string summary(const InitArguments& args, const train::Proposal& proposal) {
  return fmt::format("{:.1f} of {:.1f} GiB per GPU by the memory plan",
                     static_cast<double>(proposal.memory.total()) / kGiB,
                     static_cast<double>(args.run.gpu_bytes) / kGiB);
}

std::string to_file(const InitArguments& args, const train::Proposal& proposal) {
  const JobConfig& config = proposal.config;
  std::string text = fmt::format(
      "# {} {} ({:.2f}B parameters) on {} GPU{}: {}.\n# Written by titanium init. Run it with:\n#   {}\n"
      "# titanium config options explains every option.\n\n",
      args.run.model, args.run.flavor, proposal.parameters / 1e9, args.run.gpus, args.run.gpus == 1 ? "" : "s",
      summary(args, proposal), command_line(args));
  const bool images = draws_images(args.run);
  text += fmt::format("[job]\n{}description = {}\ndump_folder = \"./outputs\"\n\n",
                      images ? "custom_config_module = \"torchtitan.models.flux.job_config\"\n" : "",
                      quoted(args.run.model + " " + args.run.flavor));
  text += model_lines(args, config);
  text += fmt::format("\n[optimizer]\nname = \"AdamW\"\n{}\n",
                      images ? "lr = 1e-4                        # that of torchtitan's files\n"
                             : "lr = 3e-4                        # the published rate of models of 8B; smaller models "
                               "take more\n");
  text += "[lr_scheduler]\nwarmup_steps = 200\ndecay_type = \"cosine\"\nmin_lr_factor = 0.1\n\n";
  text += fmt::format(
      "[training]\n{}{}\n# Batch: {}.\nlocal_batch_size = {}\n# Precision: {}.\ndtype = {}\nmax_norm = 1.0\nsteps = "
      "1000\n\n",
      data_lines(args, config.training),
      images ? fmt::format("img_size = {}\nclassifier_free_guidance_prob = 0.447", config.training.img_size)
             : fmt::format("seq_len = {}", config.training.seq_len),
      proposal.why_batch, config.training.local_batch_size, proposal.why_precision, quoted(config.training.dtype));
  text += layout_lines(proposal);
  text += fmt::format("\n# Recomputation: {}.\n[activation_checkpoint]\nmode = {}\n{}\n", proposal.why_recomputation,
                      quoted(config.activation_checkpoint.mode),
                      config.activation_checkpoint.mode == "selective" ? "selective_ac_option = \"op\"\n" : "");
  text += checkpoint_lines(images);
  return text + "[metrics]\nlog_freq = 10\nenable_tensorboard = true\n";
}

}  // namespace

int run_init(Arguments args) {
  InitArguments init;
  init.run.model = JobConfig{}.model.name;
  init.run.flavor = "8B";
  if (!read_arguments(args, init)) return 0;
  init.run.gpu_bytes = static_cast<int64_t>(init.gpu_memory * kGiB);
  if (!init.gpu.empty()) init.run.gpu_bytes = train::known_gpu(init.gpu).total_memory;
  if (std::filesystem::exists(init.out) && !init.force) {
    throw UsageError(fmt::format("{} exists. Name another file with --out, or replace it with --force.", init.out));
  }
  const train::Proposal proposal = train::propose_run(init.run);
  write_file_atomically(init.out, to_file(init, proposal));
  fmt::print(
      "{}: {} {} on {} GPU{}, {}\n  layout: {}; {}\n  precision: {}\n  recomputation: {}: {}\n  batch: {} {} per rank: "
      "{}\nNext: titanium config check {} --ranks {} --gpu-memory {:.4g}, then {}\n",
      init.out, init.run.model, init.run.flavor, init.run.gpus, init.run.gpus == 1 ? "" : "s", summary(init, proposal),
      proposal.layout, proposal.why_layout, proposal.why_precision, proposal.config.activation_checkpoint.mode,
      proposal.why_recomputation, proposal.config.training.local_batch_size, proposal.samples, proposal.why_batch,
      init.out, init.run.gpus, static_cast<double>(init.run.gpu_bytes) / kGiB, command_line(init));
  return 0;
}

}  // namespace titanium::cli
