// What a run is told: one struct per section, one member per option, named as in the TOML file and on the command line.
// The defaults are torchtitan 0.2.2's. Options marked "own" are Titanium's. docs/options.md explains every option; each
// is declared once, in schema.cpp or *_schema.cpp. Values that load_config returns have passed their range and
// cross-option checks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace titanium::config {

using Names = std::vector<std::string>;
// One of a list of tables: its keys, and their values as JSON texts.
using Table = std::vector<std::pair<std::string, std::string>>;

struct Job {
  std::optional<std::string> config_file;
  std::string dump_folder = "./outputs";
  std::string description = "default job";
  bool print_config = false;
  std::optional<std::string> save_config_file;
  std::string custom_config_module;
};

struct Profiling {
  bool enable_profiling = false;
  std::string save_traces_folder = "profile_traces";
  int64_t profile_freq = 10;
  int64_t profiler_active = 1;
  int64_t profiler_warmup = 3;
  bool enable_memory_snapshot = false;
  std::string save_memory_snapshot_folder = "memory_snapshot";
};

struct Metrics {
  int64_t log_freq = 10;
  bool enable_tensorboard = false;
  bool disable_color_printing = false;
  std::string save_tb_folder = "tb";
  bool save_for_all_ranks = false;
  bool enable_wandb = false;
  bool enable_jsonl = true;           // own
  int64_t port = 0;                   // own; 0: no endpoint
  std::string address = "127.0.0.1";  // own
  int64_t stall_seconds = 600;        // own
};

// This section is Titanium's own.
struct Log {
  std::string format = "text";
};

struct Model {
  std::string name = "llama3";
  std::string flavor = "debugmodel";
  std::string hf_assets_path = "./tests/assets/tokenizer";
  std::optional<std::string> tokenizer_path;  // deprecated: load_config copies it into hf_assets_path
  Names converters;
  bool print_after_conversion = false;
  std::optional<std::string> attn_type;          // own: sdpa, flex or varlen; unset: the flavor's
  std::optional<std::string> attn_mask_type;     // own: causal or block_causal; unset: the flavor's
  std::string special_tokens_in_text = "token";  // own: token, text or error
  double guidance = 3.5;                         // own
};

// This section is Titanium's own.
struct Muon {
  double momentum = 0.95;
  bool nesterov = true;
  int64_t ns_steps = 5;
  std::string ns_dtype = "bfloat16";
  double eps = 1e-7;
  std::string adjust_lr_fn = "match_rms_adamw";
  double lr_factor = 1.0;
};

struct Optimizer {
  std::string name = "AdamW";
  double lr = 8e-4;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  std::string implementation = "fused";
  bool early_step_in_backward = false;
  bool bf16_stochastic_rounding = false;  // own
  double lr_factor = 1.0;                 // own
  std::vector<Names> param_groups;        // own: read by parameter_groups.h
  Muon muon;
};

struct LrScheduler {
  int64_t warmup_steps = 200;
  std::optional<int64_t> total_steps;  // unset: training.steps
  std::optional<double> decay_ratio;   // unset: decay begins right after the warm-up
  std::string decay_type = "linear";
  double min_lr_factor = 0.0;
};

struct DataLoader {
  int64_t num_workers = 0;
  bool persistent_workers = false;
  bool pin_memory = false;
  std::optional<int64_t> prefetch_factor;
};

struct Training {
  std::string dataset = "c4_test";
  std::optional<std::string> dataset_path;
  int64_t local_batch_size = 8;
  int64_t global_batch_size = -1;  // -1: local_batch_size x data-parallel degree
  int64_t seq_len = 2048;
  double max_norm = 1.0;
  int64_t steps = 10000;
  bool enable_cpu_offload = false;
  std::string dtype = "float32";
  std::string mixed_precision_param = "bfloat16";
  std::string mixed_precision_reduce = "float32";
  int64_t gc_freq = 50;
  bool gc_debug = false;
  DataLoader dataloader;
  bool skip_bad_records = false;             // own
  std::string text_field = "text";           // own
  int64_t data_streams = 256;                // own
  std::string data_striping = "auto";        // own: auto, blocks or records
  int64_t data_lanes = 256;                  // own
  std::vector<Table> sources;                // own: read by data_sources.h
  std::optional<double> source_temperature;  // own
  std::string token_dtype = "uint16";        // own
  bool shuffle = false;                      // own
  int64_t shuffle_seed = 42;                 // own
  int64_t shuffle_window = 16384;            // own
  std::string positions = "sequence";        // own: sequence or document
  std::string device = "auto";               // own: auto, cpu or cuda
  double moe_balance_loss = 0;               // own
  double moe_z_loss = 0;                     // own
  std::string flow_times = "uniform";        // own: uniform or logit_normal
  // Flux extension.
  double classifier_free_guidance_prob = 0.0;
  int64_t img_size = 256;
  bool test_mode = false;
};

struct Parallelism {
  int64_t data_parallel_replicate_degree = 1;
  int64_t data_parallel_shard_degree = -1;  // -1: the ranks that are left
  std::string fsdp_reshard_after_forward = "default";
  int64_t tensor_parallel_degree = 1;
  bool disable_loss_parallel = false;
  bool enable_async_tensor_parallel = false;
  int64_t ddp_bucket_mb = 100;
  bool fsdp_reduce_once = false;
  bool fsdp_on_one_rank = false;
  int64_t pipeline_parallel_degree = 1;
  std::optional<std::vector<Names>> module_fqns_per_model_part;
  int64_t pipeline_parallel_first_stage_less_layers = 1;
  int64_t pipeline_parallel_last_stage_less_layers = 1;
  std::optional<int64_t> pipeline_parallel_layers_per_stage;
  std::string pipeline_parallel_schedule = "1F1B";
  std::optional<std::string> pipeline_parallel_schedule_csv = "";
  int64_t pipeline_parallel_microbatch_size = 1;
  bool pipeline_parallel_expert_parallel_overlap = true;
  int64_t context_parallel_degree = 1;
  std::optional<std::string> context_parallel_load_balancer = "headtail";
  std::string context_parallel_rotate_method = "allgather";
  int64_t expert_parallel_degree = 1;
  int64_t expert_tensor_parallel_degree = 1;
  std::string expert_parallel_comm_backend = "standard";
};

struct Checkpoint {
  bool enable = false;
  bool enable_ft_dataloader_checkpoints = true;
  std::string folder = "checkpoint";
  int64_t interval = 500;
  std::optional<std::string> initial_load_path;
  bool initial_load_model_only = true;
  bool initial_load_in_hf = false;
  bool initial_load_in_hf_quantized = false;
  bool last_save_model_only = true;
  bool last_save_in_hf = false;
  std::string export_dtype = "float32";
  std::string async_mode = "disabled";
  int64_t keep_latest_k = 10;  // 0: all
  int64_t load_step = -1;      // -1: the latest
  Names exclude_from_loading;
  bool enable_first_step_checkpoint = false;
  bool create_seed_checkpoint = false;
  bool load_only = false;
  int64_t grace_seconds = 60;
  int64_t timeout_seconds = 1800;
};

struct ActivationCheckpoint {
  std::string mode = "selective";
  std::string selective_ac_option = "2";  // "op" or a number N: every Nth block
  Names per_op_sac_force_recompute_mm_shapes_by_fqns = {"moe.router.gate"};
  bool early_stop = false;
  double memory_budget = 0.5;
  bool visualize_memory_budget_pareto = false;
  bool preserve_rng_state = true;
  std::string determinism_check = "default";
  bool debug = false;
};

struct Compile {
  bool enable = false;
  Names components = {"model", "loss"};
  std::string backend = "inductor";
};

struct Float8Linear {
  bool enable_fsdp_float8_all_gather = false;
  bool precompute_float8_dynamic_scale_for_fsdp = false;
  std::optional<std::string> recipe_name;  // unset: tensorwise, dynamic
  Names filter_fqns;
  bool emulate = false;
};

struct Float8GroupedMm {
  Names fqns;
  bool emulate = false;
};

struct MxLinear {
  std::string mxfp8_dim1_cast_kernel_choice = "triton";
  std::string recipe_name = "mxfp8_cublas";
  Names filter_fqns = {"output"};
};

struct MxGroupedMm {
  std::string recipe_name = "mxfp8";
  Names fqns;
  bool emulate = false;
};

struct QuantizedLinear {
  Float8Linear float8;
  MxLinear mx;
};

struct QuantizedGroupedMm {
  Float8GroupedMm float8;
  MxGroupedMm mx;
};

struct Quantize {
  QuantizedLinear linear;
  QuantizedGroupedMm grouped_mm;
};

struct Comm {
  int64_t init_timeout_seconds = 300;
  int64_t train_timeout_seconds = 100;
  int64_t trace_buf_size = 20000;
  std::string save_traces_folder = "comm_traces";
  std::string save_traces_file_prefix = "rank_";
  std::string mode = "default";
  std::string backend = "auto";
};

struct MemoryEstimation {
  bool enable = false;
  bool disable_fake_mode = false;
};

struct FaultTolerance {
  bool enable = false;
  std::string process_group = "gloo";
  int64_t process_group_timeout_ms = 10000;
  int64_t replica_id = 0;
  int64_t group_size = 0;
  int64_t min_replica_size = 1;
  std::optional<std::string> semi_sync_method;
  // Fault-tolerance extension.
  int64_t sync_steps = 5;
  bool should_quantize = false;
  int64_t fragment_sync_delay = 0;
  double fragment_update_alpha = 0.0;
  std::vector<Names> module_fqns_per_model_fragment;
  int64_t num_fragments = 1;
};

struct Experimental {
  std::string custom_import;
  std::string custom_args_module;  // deprecated: load_config copies it into job.custom_config_module
};

struct Validation {
  bool enable = false;
  std::string dataset = "c4_validation";
  std::optional<std::string> dataset_path;
  int64_t local_batch_size = 8;
  int64_t seq_len = 2048;
  int64_t freq = 10;
  int64_t steps = -1;  // -1: the whole set
  DataLoader dataloader;
  int64_t data_streams = 16;   // own
  std::vector<Table> sources;  // own: read by data_sources.h
  // Flux extension.
  bool enable_classifier_free_guidance = false;
  double classifier_free_guidance_scale = 5.0;
  int64_t denoising_steps = 50;
  int64_t eval_freq = 100;
  int64_t save_img_count = 1;  // -1: all
  std::string save_img_folder = "img";
  bool all_timesteps = false;
};

struct Debug {
  std::optional<int64_t> seed;
  bool deterministic = false;
  bool deterministic_warn_only = false;
  bool moe_force_load_balance = false;
  bool reference_ops = false;
};

// Flux extension.
struct Encoder {
  std::string t5_encoder = "google/t5-v1_1-small";
  std::string clip_encoder = "openai/clip-vit-large-patch14";
  std::string autoencoder_path = "torchtitan/experiments/flux/assets/autoencoder/ae.safetensors";
  int64_t max_t5_encoding_len = 256;
  bool offline = false;
  bool sharded = false;
  bool on_cpu = false;
};

// Flux extension.
struct Inference {
  std::string save_img_folder = "inference_results";
  std::string prompts_path = "./torchtitan/experiments/flux/inference/prompts.txt";
  int64_t local_batch_size = 2;
  int64_t img_size = 256;
};

}  // namespace titanium::config

namespace titanium {

struct JobConfig {
  config::Job job;
  config::Profiling profiling;
  config::Metrics metrics;
  config::Log log;
  config::Model model;
  config::Optimizer optimizer;
  config::LrScheduler lr_scheduler;
  config::Training training;
  config::Parallelism parallelism;
  config::Checkpoint checkpoint;
  config::ActivationCheckpoint activation_checkpoint;
  config::Compile compile;
  config::Quantize quantize;
  config::Comm comm;
  config::MemoryEstimation memory_estimation;
  config::FaultTolerance fault_tolerance;
  config::Experimental experimental;
  config::Validation validation;
  config::Debug debug;
  config::Encoder encoder;
  config::Inference inference;
};

}  // namespace titanium
