#include "titanium/config/schema/schema.h"

#include <algorithm>

#include "titanium/base/error.h"
#include "titanium/config/schema/data_schema.h"
#include "titanium/config/schema/flux_schema.h"
#include "titanium/config/schema/metrics_schema.h"
#include "titanium/config/schema/quantize_schema.h"

namespace titanium::config {
namespace {

// Far beyond every run; the product of the two fits 64 bits.
constexpr double kMostSamples = 1 << 30, kMostTokens = 1 << 30;

void declare_job(Schema& schema) {
  Section<Job> job(schema, "job", "The run as a whole.", &JobConfig::job);
  job.option("config_file", &Job::config_file, "TOML file to read. Only the command line can name it.");
  job.option("dump_folder", &Job::dump_folder, "Folder for everything that the run writes.");
  job.option("description", &Job::description, "A line for the log that says what the run is for.");
  job.option("print_config", &Job::print_config, "Log the whole configuration as JSON at the start.");
  job.option("save_config_file", &Job::save_config_file,
             "File inside job.dump_folder that gets the configuration as JSON.");
  job.option("custom_config_module", &Job::custom_config_module,
             "Extension of the options: torchtitan.models.flux.job_config or torchtitan.components.ft.config.");
}

void declare_profiling(Schema& schema) {
  Section<Profiling> profiling(schema, "profiling", "Traces of time and memory.", &JobConfig::profiling);
  profiling.option("enable_profiling", &Profiling::enable_profiling, "Record traces of the operators.");
  profiling.option("save_traces_folder", &Profiling::save_traces_folder, "Folder of the traces in job.dump_folder.");
  profiling.option("profile_freq", &Profiling::profile_freq, "Steps per cycle; each cycle writes one trace.")
      .at_least(1);
  profiling.option("profiler_active", &Profiling::profiler_active, "Recorded steps of a cycle.").at_least(1);
  profiling
      .option("profiler_warmup", &Profiling::profiler_warmup, "Steps with the profiler on before recording begins.")
      .at_least(0);
  profiling.option("enable_memory_snapshot", &Profiling::enable_memory_snapshot,
                   "Write snapshots of the GPU memory allocator.");
  profiling.option("save_memory_snapshot_folder", &Profiling::save_memory_snapshot_folder,
                   "Folder of the snapshots in job.dump_folder.");
}

void declare_model(Schema& schema) {
  Section<Model> model(schema, "model", "What is trained.", &JobConfig::model);
  model.option("name", &Model::name, "Model family, of those in docs/models.md.");
  model.option("flavor", &Model::flavor, "Size within the family.");
  model.option("hf_assets_path", &Model::hf_assets_path,
               "Folder in Hugging Face layout: tokenizer and, where wanted, config.json and safetensors weights.");
  model.option("tokenizer_path", &Model::tokenizer_path, "Former name of model.hf_assets_path.");
  model.option("converters", &Model::converters, "Changes to the model before it is parallelised, in this order.")
      .one_of({"quantize.linear.float8", "quantize.grouped_mm.float8", "quantize.linear.mx", "quantize.grouped_mm.mx"})
      .alias("float8", "quantize.linear.float8");
  model.option("print_after_conversion", &Model::print_after_conversion, "Log the modules after the converters.");
  model
      .option("special_tokens_in_text", &Model::special_tokens_in_text,
              "What a special token that stands in a text becomes: the token, ordinary text, or an error.")
      .one_of({"token", "text", "error"})
      .own();
  model.option("attn_type", &Model::attn_type, "Attention implementation. None: the flavor's own.")
      .one_of({"sdpa", "flex", "varlen"})
      .own();
  model
      .option("attn_mask_type", &Model::attn_mask_type,
              "Whether attention stays inside a document (block_causal). None: the flavor's own.")
      .one_of({"causal", "block_causal"})
      .own();
  model
      .option("guidance", &Model::guidance,
              "Strength of guidance that an image model is told which has an embedding of it, as FLUX.1-dev has.")
      .at_least(0)
      .own();
}

void declare_muon(Section<Muon> muon) {
  muon.option("momentum", &Muon::momentum, "Decay of the mean of the gradients.").at_least(0).below(1).own();
  muon.option("nesterov", &Muon::nesterov, "Mix the gradient into the mean once more before it is used.").own();
  muon.option("ns_steps", &Muon::ns_steps, "Iterations of the orthogonalisation.").at_least(1).at_most(99).own();
  muon.option("ns_dtype", &Muon::ns_dtype, "What the orthogonalisation is computed in.")
      .one_of({"bfloat16", "float32"})
      .own();
  muon.option("eps", &Muon::eps, "The least norm that a matrix is divided by.").above(0).own();
  muon.option("adjust_lr_fn", &Muon::adjust_lr_fn,
              "Factor on the learning rate by the shape of the matrix. match_rms_adamw makes updates as large as "
              "AdamW's; original is sqrt(max(1, rows / columns)).")
      .one_of({"original", "match_rms_adamw"})
      .own();
  muon.option("lr_factor", &Muon::lr_factor, "Factor on the learning rate of all matrices of Muon.").at_least(0).own();
}

void declare_optimizer(Schema& schema) {
  Section<Optimizer> optimizer(schema, "optimizer", "The update of the parameters.", &JobConfig::optimizer);
  optimizer
      .option(
          "name", &Optimizer::name,
          "Adam, AdamW or Muon. Adam adds weight decay to the gradient, AdamW decouples it. Muon orthogonalises the "
          "updates of the matrices of blocks and leaves all other parameters to AdamW.")
      .one_of({"Adam", "AdamW", "Muon"});
  optimizer.option("lr", &Optimizer::lr, "Peak learning rate.").at_least(0);
  optimizer.option("beta1", &Optimizer::beta1, "Decay of the mean of the gradients.").at_least(0).below(1);
  optimizer.option("beta2", &Optimizer::beta2, "Decay of the mean of their squares.").at_least(0).below(1);
  optimizer.option("eps", &Optimizer::eps, "Added to the denominator.").at_least(0);
  optimizer.option("weight_decay", &Optimizer::weight_decay, "Weight decay.").at_least(0);
  optimizer.option("implementation", &Optimizer::implementation, "PyTorch's choice of optimizer kernels.")
      .one_of({"for-loop", "foreach", "fused"})
      .without_effect();
  optimizer.option("early_step_in_backward", &Optimizer::early_step_in_backward,
                   "Update each parameter as soon as its gradient is there.");
  optimizer
      .option("bf16_stochastic_rounding", &Optimizer::bf16_stochastic_rounding,
              "Round bfloat16 parameters up or down at random, so that small updates count on average.")
      .own();
  optimizer.option("lr_factor", &Optimizer::lr_factor, "Factor on the learning rate, for groups of parameters.")
      .at_least(0)
      .own();
  optimizer
      .option(
          "param_groups", &Optimizer::param_groups,
          "Parameters with options of their own. Each group is a regular expression that is searched for in names, and "
          "settings: [\"norm|bias\", \"weight_decay=0\"]. The first group that matches takes a parameter. On the "
          "command line as JSON.")
      .own();
  declare_muon(optimizer.section("muon", &Optimizer::muon, "Options of optimizer.name = \"Muon\"."));
}

void declare_lr_scheduler(Schema& schema) {
  Section<LrScheduler> schedule(schema, "lr_scheduler", "Warm-up, stable phase and decay of the learning rate.",
                                &JobConfig::lr_scheduler);
  schedule.option("warmup_steps", &LrScheduler::warmup_steps, "Steps of linear warm-up.").at_least(0);
  schedule.option("total_steps", &LrScheduler::total_steps, "Length of the schedule in steps. None: training.steps.")
      .at_least(1);
  schedule
      .option("decay_ratio", &LrScheduler::decay_ratio,
              "Share of the schedule that decays. None: everything after the warm-up.")
      .between(0, 1);
  schedule.option("decay_type", &LrScheduler::decay_type, "Shape of the decay.").one_of({"linear", "sqrt", "cosine"});
  schedule.option("min_lr_factor", &LrScheduler::min_lr_factor, "Last learning rate as a share of optimizer.lr.")
      .between(0, 1);
}

void declare_dataloader(Section<DataLoader> loader) {
  loader.option("num_workers", &DataLoader::num_workers, "Threads that tokenise and pack. 0: one thread.")
      .between(0, 1024);
  loader.option("persistent_workers", &DataLoader::persistent_workers, "Keep Python's worker processes between epochs.")
      .without_effect();
  loader.option("pin_memory", &DataLoader::pin_memory, "Copy batches to pinned memory; Titanium always does on GPUs.")
      .without_effect();
  loader.option("prefetch_factor", &DataLoader::prefetch_factor, "Batches that wait ready per worker. None: 2.")
      .between(1, 65536);
}

void declare_training_data(Section<Training>& training) {
  training.option("dataset", &Training::dataset, "Name of a dataset that Titanium knows.");
  training.option("dataset_path", &Training::dataset_path, "File or folder to read instead of the dataset's own.");
  training.option("local_batch_size", &Training::local_batch_size, "Samples per data-parallel rank and micro step.")
      .between(1, kMostSamples);
  training
      .option("global_batch_size", &Training::global_batch_size,
              "Samples per step; more than all ranks take at once means gradient accumulation. -1: local_batch_size "
              "times the data-parallel degree.")
      .between(1, kMostSamples)
      .or_also(-1);
  training.option("seq_len", &Training::seq_len, "Tokens per sample.").between(1, kMostTokens);
}

void declare_image_training(Section<Training>& training) {
  training
      .option(
          "flow_times", &Training::flow_times,
          "At which times between image and noise an image model trains: anywhere alike, or more in the middle, where "
          "the logit of the time is standard normal.")
      .one_of({"uniform", "logit_normal"})
      .own();
  training
      .option("classifier_free_guidance_prob", &Training::classifier_free_guidance_prob,
              "Probability of dropping each text encoding.")
      .between(0, 1)
      .of(Extension::kFlux);
  training.option("img_size", &Training::img_size, "Width and height of the images.").at_least(1).of(Extension::kFlux);
  training.option("test_mode", &Training::test_mode, "Random encoders and a test tokenizer.").of(Extension::kFlux);
}

void declare_training(Schema& schema) {
  Section<Training> training(schema, "training", "Data, batch, precision and length of the run.", &JobConfig::training);
  declare_training_data(training);
  training.option("max_norm", &Training::max_norm, "Gradients are scaled down to this L2 norm; -1 leaves them alone.")
      .above(0)
      .or_also(-1);
  training.option("steps", &Training::steps, "Steps of the run.").at_least(1);
  training.option("enable_cpu_offload", &Training::enable_cpu_offload,
                  "Keep parameters, gradients and optimizer state in CPU memory.");
  training.option("dtype", &Training::dtype, "Type in which the parameters are stored.")
      .one_of({"bfloat16", "float32"});
  training.option("mixed_precision_param", &Training::mixed_precision_param, "Type in which the model computes.")
      .one_of({"bfloat16", "float32"});
  training.option("mixed_precision_reduce", &Training::mixed_precision_reduce, "Type in which gradients are reduced.")
      .one_of({"float32"});
  training.option("gc_freq", &Training::gc_freq, "Steps between collections of Python's garbage.")
      .at_least(1)
      .without_effect();
  training.option("gc_debug", &Training::gc_debug, "Look for cycles in Python's garbage.").without_effect();
  training
      .option("skip_bad_records", &Training::skip_bad_records,
              "Count records that are not JSON or lack the text and go on, instead of stopping.")
      .own();
  training.option("text_field", &Training::text_field, "Field or column of a record that holds the text or its tokens.")
      .own();
  training
      .option(
          "data_streams", &Training::data_streams,
          "Logical streams that documents are dealt to. The order of samples depends on it and not on the number of "
          "data-parallel ranks, which must divide it.")
      .between(1, 65536)
      .own();
  declare_sources(training);
  training.option("device", &Training::device, "Where to train; auto takes a GPU if there is one.")
      .one_of({"auto", "cpu", "cuda"})
      .own();
  training
      .option("moe_balance_loss", &Training::moe_balance_loss,
              "Factor of the loss that balances experts inside each sequence, as DeepSeek V3 has it.")
      .at_least(0)
      .own();
  training
      .option("moe_z_loss", &Training::moe_z_loss,
              "Factor of the mean square of the log-sum-exp of a router's logits, which keeps them small.")
      .at_least(0)
      .own();
  declare_image_training(training);
  declare_dataloader(training.section("dataloader", &Training::dataloader, "The loader of the training data."));
}

void declare_degrees(Section<Parallelism>& parallelism) {
  parallelism
      .option("data_parallel_replicate_degree", &Parallelism::data_parallel_replicate_degree,
              "Copies of the model: DDP alone, HSDP together with sharding.")
      .at_least(1);
  parallelism
      .option("data_parallel_shard_degree", &Parallelism::data_parallel_shard_degree,
              "Ranks that share one copy of the parameters (FSDP). -1: the ranks that the other degrees leave.")
      .at_least(1)
      .or_also(-1);
  parallelism
      .option("fsdp_reshard_after_forward", &Parallelism::fsdp_reshard_after_forward,
              "Free gathered parameters after the forward. default: always, but never with pipeline parallelism.")
      .one_of({"default", "always", "never"});
  parallelism.option("tensor_parallel_degree", &Parallelism::tensor_parallel_degree, "Ranks that split each matrix.")
      .at_least(1);
  parallelism.option("disable_loss_parallel", &Parallelism::disable_loss_parallel,
                     "Gather the logits of tensor-parallel ranks before the loss.");
  parallelism.option("enable_async_tensor_parallel", &Parallelism::enable_async_tensor_parallel,
                     "Overlap the collectives of tensor parallelism with its matrix products.");
  parallelism
      .option(
          "ddp_bucket_mb", &Parallelism::ddp_bucket_mb,
          "Gradients that replicas sum at a time without sharding, in MB: a bucket travels while the backward goes on.")
      .at_least(1)
      .own();
  parallelism
      .option("fsdp_reduce_once", &Parallelism::fsdp_reduce_once,
              "Sum the gradients of accumulation steps locally and reduce them once a step, at the price of the memory "
              "of whole gradients in fp32.")
      .own();
  parallelism
      .option("fsdp_on_one_rank", &Parallelism::fsdp_on_one_rank,
              "Gather and reduce although there is only one rank to share with: shows what sharding itself costs, and "
              "lets one GPU offload.")
      .own();
}

void declare_pipeline(Section<Parallelism>& parallelism) {
  parallelism.option("pipeline_parallel_degree", &Parallelism::pipeline_parallel_degree, "Ranks that split the layers.")
      .at_least(1);
  parallelism.option("module_fqns_per_model_part", &Parallelism::module_fqns_per_model_part,
                     "Modules of each stage, by name. None: an even split. On the command line as JSON.");
  parallelism
      .option("pipeline_parallel_first_stage_less_layers", &Parallelism::pipeline_parallel_first_stage_less_layers,
              "Layers that the embedding counts for.")
      .at_least(0);
  parallelism
      .option("pipeline_parallel_last_stage_less_layers", &Parallelism::pipeline_parallel_last_stage_less_layers,
              "Layers that the final norm and output count for.")
      .at_least(0);
  parallelism
      .option("pipeline_parallel_layers_per_stage", &Parallelism::pipeline_parallel_layers_per_stage,
              "Layers per stage. None: what the schedule asks for.")
      .at_least(1);
  parallelism
      .option("pipeline_parallel_schedule", &Parallelism::pipeline_parallel_schedule, "Order of the micro-batches.")
      .one_of({"1F1B", "Interleaved1F1B", "GPipe", "LoopedBFS", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV",
               "PipelineScheduleSingle", "PipelineScheduleMulti"})
      .in_any_case();
  parallelism.option("pipeline_parallel_schedule_csv", &Parallelism::pipeline_parallel_schedule_csv,
                     "CSV file with a schedule of one's own.");
  parallelism
      .option("pipeline_parallel_microbatch_size", &Parallelism::pipeline_parallel_microbatch_size,
              "Samples of a pipeline micro-batch.")
      .between(1, kMostSamples);
  parallelism.option("pipeline_parallel_expert_parallel_overlap",
                     &Parallelism::pipeline_parallel_expert_parallel_overlap,
                     "Overlap expert dispatch with computation under DualPipeV.");
}

void declare_context_and_experts(Section<Parallelism>& parallelism) {
  parallelism
      .option("context_parallel_degree", &Parallelism::context_parallel_degree, "Ranks that split each sequence.")
      .at_least(1);
  parallelism
      .option("context_parallel_load_balancer", &Parallelism::context_parallel_load_balancer,
              "How positions are dealt out so that causal attention costs the same everywhere. None: in order.")
      .one_of({"headtail", "ptrr"});
  parallelism
      .option("context_parallel_rotate_method", &Parallelism::context_parallel_rotate_method,
              "How keys and values travel.")
      .one_of({"allgather", "alltoall"});
  parallelism.option("expert_parallel_degree", &Parallelism::expert_parallel_degree, "Ranks that split the experts.")
      .at_least(1);
  parallelism
      .option("expert_tensor_parallel_degree", &Parallelism::expert_tensor_parallel_degree,
              "Ranks that split each expert: 1 or the tensor-parallel degree.")
      .at_least(1);
  parallelism
      .option("expert_parallel_comm_backend", &Parallelism::expert_parallel_comm_backend,
              "How tokens travel to their experts.")
      .one_of({"standard", "deepep"});
}

void declare_parallelism(Schema& schema) {
  Section<Parallelism> parallelism(schema, "parallelism", "How ranks share the work.", &JobConfig::parallelism);
  declare_degrees(parallelism);
  declare_pipeline(parallelism);
  declare_context_and_experts(parallelism);
}

void declare_loading(Section<Checkpoint>& checkpoint) {
  checkpoint.option("initial_load_path", &Checkpoint::initial_load_path,
                    "Checkpoint to start from while the run has none of its own.");
  checkpoint.option("initial_load_model_only", &Checkpoint::initial_load_model_only,
                    "Take only the model from it: no optimizer, schedule or data position.");
  checkpoint.option("initial_load_in_hf", &Checkpoint::initial_load_in_hf,
                    "It is in Hugging Face layout. Without initial_load_path: model.hf_assets_path.");
  checkpoint.option("initial_load_in_hf_quantized", &Checkpoint::initial_load_in_hf_quantized,
                    "Its weights are quantised and are to be expanded.");
  checkpoint.option("load_step", &Checkpoint::load_step, "Step to resume from. -1: the latest.")
      .at_least(0)
      .or_also(-1);
  checkpoint.option("exclude_from_loading", &Checkpoint::exclude_from_loading,
                    "Parts not to load: model, optimizer, lr_scheduler, dataloader, train_state.");
  checkpoint.option("load_only", &Checkpoint::load_only, "Load but never save.");
}

void declare_patience(Section<Checkpoint>& checkpoint) {
  checkpoint
      .option("grace_seconds", &Checkpoint::grace_seconds,
              "After SIGTERM or SIGINT: time for the current step and its checkpoint, then the run ends.")
      .at_least(1)
      .own();
  checkpoint
      .option("timeout_seconds", &Checkpoint::timeout_seconds,
              "How long ranks wait for each other while a checkpoint is written.")
      .at_least(1)
      .own();
}

void declare_checkpoint(Schema& schema) {
  Section<Checkpoint> checkpoint(schema, "checkpoint", "Saving and loading.", &JobConfig::checkpoint);
  checkpoint.option("enable", &Checkpoint::enable, "Save and load checkpoints.");
  checkpoint.option("enable_ft_dataloader_checkpoints", &Checkpoint::enable_ft_dataloader_checkpoints,
                    "Under fault tolerance, each replica saves its data position.");
  checkpoint.option("folder", &Checkpoint::folder,
                    "Folder of the checkpoints in job.dump_folder, or an address such as s3://bucket/run.");
  checkpoint.option("interval", &Checkpoint::interval, "Steps between checkpoints.").at_least(1);
  declare_loading(checkpoint);
  checkpoint.option("last_save_model_only", &Checkpoint::last_save_model_only,
                    "The last checkpoint has only the model.");
  checkpoint.option("last_save_in_hf", &Checkpoint::last_save_in_hf, "The last checkpoint is in Hugging Face layout.");
  checkpoint.option("export_dtype", &Checkpoint::export_dtype, "Type of the weights in a last, model-only checkpoint.")
      .one_of({"float16", "bfloat16", "float32"});
  checkpoint
      .option("async_mode", &Checkpoint::async_mode,
              "Save in the background. Both ways stage in pinned memory on a GPU.")
      .one_of({"disabled", "async", "async_with_pinned_mem"});
  checkpoint.option("keep_latest_k", &Checkpoint::keep_latest_k, "Checkpoints to keep, 2 or more. 0: all.").at_least(0);
  checkpoint.option("enable_first_step_checkpoint", &Checkpoint::enable_first_step_checkpoint,
                    "Save after step 1 as well, to try the storage early.");
  checkpoint.option("create_seed_checkpoint", &Checkpoint::create_seed_checkpoint,
                    "Save the initial model on one rank and end.");
  declare_patience(checkpoint);
}

void declare_activation_checkpoint(Schema& schema) {
  Section<ActivationCheckpoint> recompute(schema, "activation_checkpoint",
                                          "What is recomputed in the backward instead of kept.",
                                          &JobConfig::activation_checkpoint);
  recompute.option("mode", &ActivationCheckpoint::mode, "How much is recomputed.")
      .one_of({"selective", "full", "memory_budget", "none"});
  recompute.option("selective_ac_option", &ActivationCheckpoint::selective_ac_option,
                   "With mode selective: \"op\" for a choice by operator, or a number N for every Nth block.");
  recompute.option("per_op_sac_force_recompute_mm_shapes_by_fqns",
                   &ActivationCheckpoint::per_op_sac_force_recompute_mm_shapes_by_fqns,
                   "With \"op\": products of the shape of these modules are always recomputed.");
  recompute.option("early_stop", &ActivationCheckpoint::early_stop,
                   "Stop recomputing when all that is needed is there.");
  recompute
      .option("memory_budget", &ActivationCheckpoint::memory_budget,
              "With mode memory_budget: 0 recomputes all, 1 keeps all.")
      .between(0, 1);
  recompute.option("visualize_memory_budget_pareto", &ActivationCheckpoint::visualize_memory_budget_pareto,
                   "Write a picture of time against memory for all budgets.");
  recompute.option("preserve_rng_state", &ActivationCheckpoint::preserve_rng_state,
                   "Recompute with the random state of the forward.");
  recompute
      .option("determinism_check", &ActivationCheckpoint::determinism_check,
              "Compare shapes of recomputed tensors with those of the forward.")
      .one_of({"default", "none"});
  recompute.option("debug", &ActivationCheckpoint::debug, "Keep a trace of what is recomputed.");
}

void declare_compile(Schema& schema) {
  Section<Compile> compile(schema, "compile", "torch.compile; Titanium's kernels are fused already.",
                           &JobConfig::compile);
  compile.option("enable", &Compile::enable, "Compile.").without_effect();
  compile.option("components", &Compile::components, "What to compile.").without_effect();
  compile.option("backend", &Compile::backend, "Compiler.").without_effect();
}

void declare_comm(Schema& schema) {
  Section<Comm> comm(schema, "comm", "Communication between ranks.", &JobConfig::comm);
  comm.option("init_timeout_seconds", &Comm::init_timeout_seconds, "Time limit of a collective up to the first step.")
      .at_least(1);
  comm.option("train_timeout_seconds", &Comm::train_timeout_seconds, "Time limit of a collective after the first step.")
      .at_least(1);
  comm.option("trace_buf_size", &Comm::trace_buf_size, "Entries of the flight recorder. 0: off.").at_least(0);
  comm.option("save_traces_folder", &Comm::save_traces_folder, "Folder of its dumps in job.dump_folder.");
  comm.option("save_traces_file_prefix", &Comm::save_traces_file_prefix, "Beginning of the names of its dumps.");
  comm.option("mode", &Comm::mode, "Real communication, or one process that simulates the others.")
      .one_of({"default", "fake_backend", "local_tensor"});
  comm.option("backend", &Comm::backend,
              "What carries the collectives. auto: NCCL between GPUs, Gloo between CPUs. gloo: also between GPUs, over "
              "host memory; several ranks may then share a GPU.")
      .one_of({"auto", "nccl", "gloo"})
      .own();
}

void declare_memory_estimation(Schema& schema) {
  Section<MemoryEstimation> estimation(schema, "memory_estimation", "Predict memory instead of training.",
                                       &JobConfig::memory_estimation);
  estimation.option("enable", &MemoryEstimation::enable, "Print the estimate and end.");
  estimation.option("disable_fake_mode", &MemoryEstimation::disable_fake_mode, "Estimate with real tensors.");
}

void declare_fault_tolerance(Schema& schema) {
  Section<FaultTolerance> tolerance(schema, "fault_tolerance", "Replicas that may come and go.",
                                    &JobConfig::fault_tolerance);
  tolerance.option("enable", &FaultTolerance::enable, "Train with a changing set of replicas.");
  tolerance.option("process_group", &FaultTolerance::process_group, "Back end between replicas.")
      .one_of({"gloo", "nccl"});
  tolerance
      .option("process_group_timeout_ms", &FaultTolerance::process_group_timeout_ms,
              "Time limit of a collective between replicas.")
      .at_least(1);
  tolerance.option("replica_id", &FaultTolerance::replica_id, "Number of this replica.").at_least(0);
  tolerance.option("group_size", &FaultTolerance::group_size, "Replicas that share the data.").at_least(0);
  tolerance.option("min_replica_size", &FaultTolerance::min_replica_size, "Replicas without which no step is taken.")
      .at_least(1);
  tolerance
      .option("semi_sync_method", &FaultTolerance::semi_sync_method,
              "Synchronise rarely by this method. None: every step.")
      .one_of({"local_sgd", "diloco"});
  const auto extension = Extension::kFaultTolerance;
  tolerance.option("sync_steps", &FaultTolerance::sync_steps, "Steps between synchronisations.")
      .at_least(1)
      .of(extension);
  tolerance.option("should_quantize", &FaultTolerance::should_quantize, "Quantise what is sent.").of(extension);
  tolerance
      .option("fragment_sync_delay", &FaultTolerance::fragment_sync_delay,
              "Steps between sending a fragment and waiting for it.")
      .at_least(0)
      .of(extension);
  tolerance
      .option("fragment_update_alpha", &FaultTolerance::fragment_update_alpha,
              "Share of the local parameters in the result. 0: only the global ones.")
      .between(0, 1)
      .of(extension);
  tolerance
      .option("module_fqns_per_model_fragment", &FaultTolerance::module_fqns_per_model_fragment,
              "Modules of each fragment, by name. On the command line as JSON.")
      .of(extension);
  tolerance.option("num_fragments", &FaultTolerance::num_fragments, "Fragments of an automatic split.")
      .at_least(1)
      .of(extension);
}

void declare_experimental(Schema& schema) {
  Section<Experimental> experimental(schema, "experimental", "Hooks for Python code.", &JobConfig::experimental);
  experimental.option("custom_import", &Experimental::custom_import, "Python module to import at the start.");
  experimental.option("custom_args_module", &Experimental::custom_args_module,
                      "Former name of job.custom_config_module.");
}

void declare_validation_of_flux(Section<Validation>& validation) {
  const auto flux = Extension::kFlux;
  validation
      .option("enable_classifier_free_guidance", &Validation::enable_classifier_free_guidance, "Sample with guidance.")
      .of(flux);
  validation
      .option("classifier_free_guidance_scale", &Validation::classifier_free_guidance_scale,
              "Strength of the guidance.")
      .at_least(0)
      .of(flux);
  validation.option("denoising_steps", &Validation::denoising_steps, "Steps of sampling an image.")
      .at_least(1)
      .of(flux);
  validation.option("eval_freq", &Validation::eval_freq, "Images are drawn after every validation: see freq.")
      .at_least(1)
      .without_effect()
      .of(flux);
  validation.option("save_img_count", &Validation::save_img_count, "Images to sample and save. -1: all.")
      .at_least(0)
      .or_also(-1)
      .of(flux);
  validation.option("save_img_folder", &Validation::save_img_folder, "Folder of the images.").of(flux);
  validation.option("all_timesteps", &Validation::all_timesteps, "Measure the loss of each sample at all time steps.")
      .of(flux);
}

void declare_validation(Schema& schema) {
  Section<Validation> validation(schema, "validation", "Loss on held-out data.", &JobConfig::validation);
  validation.option("enable", &Validation::enable, "Measure the validation loss.");
  validation.option("dataset", &Validation::dataset, "Name of a dataset that Titanium knows.");
  validation.option("dataset_path", &Validation::dataset_path, "File or folder to read instead of the dataset's own.");
  validation.option("local_batch_size", &Validation::local_batch_size, "Samples per data-parallel rank and step.")
      .between(1, kMostSamples);
  validation.option("seq_len", &Validation::seq_len, "Tokens per sample.").between(1, kMostTokens);
  validation.option("freq", &Validation::freq, "Training steps between validations.").at_least(1);
  validation.option("steps", &Validation::steps, "Steps of a validation. -1: the whole set.").at_least(1).or_also(-1);
  validation.option("data_streams", &Validation::data_streams, "As training.data_streams.").between(1, 65536).own();
  declare_validation_sources(validation);
  declare_validation_of_flux(validation);
  declare_dataloader(validation.section("dataloader", &Validation::dataloader, "The loader of the validation data."));
}

void declare_debug(Schema& schema) {
  Section<Debug> debug(schema, "debug", "Reproducibility.", &JobConfig::debug);
  debug.option("seed", &Debug::seed, "Seed of initial weights and stochastic rounding. None: 0; two runs are alike.");
  debug.option("deterministic", &Debug::deterministic, "Only algorithms that give the same bits each time.");
  debug.option("deterministic_warn_only", &Debug::deterministic_warn_only,
               "Warn instead of stopping where there is no such algorithm.");
  debug.option("moe_force_load_balance", &Debug::moe_force_load_balance, "Deal tokens to experts in turn.");
  debug
      .option("reference_ops", &Debug::reference_ops,
              "Operators of ATen instead of fused kernels, to find out whether a kernel is to blame.")
      .own();
}

}  // namespace

const Schema& schema() {
  static const Schema instance = [] {
    Schema schema;
    for (const auto declare : {declare_job,
                               declare_profiling,
                               declare_metrics,
                               declare_log,
                               declare_model,
                               declare_optimizer,
                               declare_lr_scheduler,
                               declare_training,
                               declare_parallelism,
                               declare_checkpoint,
                               declare_activation_checkpoint,
                               declare_compile,
                               declare_quantize,
                               declare_comm,
                               declare_memory_estimation,
                               declare_fault_tolerance,
                               declare_experimental,
                               declare_validation,
                               declare_debug,
                               declare_flux}) {
      declare(schema);
    }
    return schema;
  }();
  return instance;
}

}  // namespace titanium::config
