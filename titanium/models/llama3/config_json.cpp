// Llama sizes out of Hugging Face's config.json and Meta's params.json, and into the former.
#include <nlohmann/json.hpp>

#include "titanium/base/error.h"
#include "titanium/base/file.h"
#include "titanium/base/json.h"
#include "titanium/base/printable.h"
#include "titanium/checkpoint/weights_source.h"
#include "titanium/models/llama3/args.h"

namespace titanium::models::llama3 {
namespace {

using Json = nlohmann::json;
constexpr auto kReplaceInvalid = Json::error_handler_t::replace;

// Reads typed values out of one object and names file and key in every complaint.
class Reader {
 public:
  Reader(std::string place, const Json& object) : place_(std::move(place)), object_(object) {}

  bool has(const char* key) const { return object_.contains(key) && !object_[key].is_null(); }

  // The default limit is far beyond every model and keeps all products of sizes inside int64.
  int64_t size(const char* key, int64_t largest = int64_t{1} << 22) const {
    const Json& value = required(key);
    if (!value.is_number_integer()) fail(key, "a whole number");
    if (value < 1 || value > largest) fail(key, fmt::format("between 1 and {}", largest));
    return value.get<int64_t>();
  }
  int64_t size_or(const char* key, int64_t fallback) const { return has(key) ? size(key) : fallback; }

  double positive(const char* key) const {
    const Json& value = required(key);
    if (!value.is_number() || !(value.get<double>() > 0)) fail(key, "a positive number");
    return value.get<double>();
  }
  double positive_or(const char* key, double fallback) const { return has(key) ? positive(key) : fallback; }

  bool flag_or(const char* key, bool fallback) const {
    if (!has(key)) return fallback;
    if (!object_[key].is_boolean()) fail(key, "true or false");
    return object_[key].get<bool>();
  }
  std::string text_or(const char* key, const std::string& fallback) const {
    if (!has(key)) return fallback;
    if (!object_[key].is_string()) fail(key, "a string");
    return object_[key].get<std::string>();
  }
  Reader object(const char* key) const {
    const Json& value = required(key);
    if (!value.is_object()) fail(key, "an object");
    return {place_ + ": " + key, value};
  }

  [[noreturn]] void fail(const char* key, const std::string& expectation) const {
    // Containers are not written out: they may be large.
    const std::string value = !has(key)                      ? "missing"
                              : object_[key].is_structured() ? fmt::format("an {}", object_[key].type_name())
                                                             : object_[key].dump(-1, ' ', false, kReplaceInvalid);
    throw UsageError(fmt::format("{}: {} is {}, but should be {}.", place_, key, printable(value, 80), expectation));
  }

 private:
  const Json& required(const char* key) const {
    if (!has(key)) fail(key, "given");
    return object_[key];
  }

  std::string place_;
  const Json& object_;
};

constexpr int64_t kLongest = int64_t{1} << 30;  // sequence

// `rope_theta` + `rope_scaling` of published folders, or everything in `rope_parameters` (transformers 5).
void read_rope(const Reader& config, Args& args) {
  const bool together = config.has("rope_parameters");
  const Reader& base = config;
  args.rope_theta =
      together ? config.object("rope_parameters").positive_or("rope_theta", base.positive_or("rope_theta", 10000))
               : base.positive_or("rope_theta", 10000);
  const char* key = together ? "rope_parameters" : "rope_scaling";
  if (!config.has(key)) return;
  const Reader scaling = config.object(key);
  const std::string type = scaling.text_or("rope_type", scaling.text_or("type", "default"));
  if (type == "default") return;
  if (type != "llama3") scaling.fail(scaling.has("rope_type") ? "rope_type" : "type", "\"llama3\" or \"default\"");
  args.rope_scaling = ops::RopeScaling{scaling.positive("factor"), scaling.positive("low_freq_factor"),
                                       scaling.positive("high_freq_factor"),
                                       scaling.size("original_max_position_embeddings", kLongest)};
  if (args.rope_scaling->high_frequency_factor <= args.rope_scaling->low_frequency_factor) {
    scaling.fail("high_freq_factor", "larger than low_freq_factor");
  }
}

Json read_object(const std::filesystem::path& file, std::string_view expected) {
  const std::string text = read_file(file, "model description");
  try {
    Json json = parse_json(text);
    if (json.is_object()) return json;
  } catch (const JsonError& error) {
    throw UsageError(fmt::format("{} {}. Expected {}.", file.string(), error.what(), expected));
  }
  throw UsageError(fmt::format("{} is not a JSON object. Expected {}.", file.string(), expected));
}

}  // namespace

Args args_from_config_json(const std::filesystem::path& file) {
  const Json json = read_object(file, "Hugging Face's config.json of a Llama");
  const Reader config(file.string(), json);
  if (config.text_or("model_type", "llama") != "llama") config.fail("model_type", "\"llama\"");
  if (config.text_or("hidden_act", "silu") != "silu") config.fail("hidden_act", "\"silu\"");
  for (const char* key : {"attention_bias", "mlp_bias"}) {
    if (config.flag_or(key, false)) config.fail(key, "false: Llama has no biases");
  }
  Args args;
  args.dim = config.size("hidden_size");
  args.n_layers = config.size("num_hidden_layers", /*largest=*/4096);
  args.n_heads = config.size("num_attention_heads");
  args.n_kv_heads = config.size_or("num_key_value_heads", args.n_heads);
  if (!config.has("head_dim") && args.dim % args.n_heads != 0) {
    config.fail("hidden_size", "a multiple of num_attention_heads, or head_dim given");
  }
  args.head_dim = config.size_or("head_dim", args.dim / args.n_heads);
  args.ffn_hidden_dim = config.size("intermediate_size");
  args.vocab_size = config.size("vocab_size");
  args.norm_eps = config.positive_or("rms_norm_eps", 1e-6);
  args.max_seq_len = config.has("max_position_embeddings") ? config.size("max_position_embeddings", kLongest) : 2048;
  args.tied_embeddings = config.flag_or("tie_word_embeddings", false);
  if (args.n_heads % args.n_kv_heads != 0) config.fail("num_key_value_heads", "a divisor of num_attention_heads");
  if (args.head_dim % 2 != 0 || args.head_dim < 2)
    config.fail("head_dim", "even (without it, hidden_size / num_attention_heads counts)");
  read_rope(config, args);
  return args;
}

Args args_from_params_json(const std::filesystem::path& file) {
  const Json json = read_object(file, "params.json of Meta's Llama");
  const Reader params(file.string(), json);
  const bool scaled = params.flag_or("use_scaled_rope", false);
  Args args;
  args.dim = params.size("dim");
  args.n_layers = params.size("n_layers", /*largest=*/4096);
  args.n_heads = params.size("n_heads");
  args.n_kv_heads = params.size_or("n_kv_heads", args.n_heads);
  args.head_dim = params.size_or("head_dim", args.dim / args.n_heads);
  args.ffn_hidden_dim =
      ffn_hidden_dim(args.dim, params.positive_or("ffn_dim_multiplier", 1.0), params.size("multiple_of"));
  args.norm_eps = params.positive_or("norm_eps", 1e-5);
  args.rope_theta = params.positive_or("rope_theta", 10000);
  if (scaled) args.rope_scaling = ops::RopeScaling{};
  // The file does not say: 4096 positions are Llama 2's, 8192 Llama 3's, 131072 Llama 3.1's.
  args.max_seq_len = params.size_or("max_seq_len", scaled ? 131072 : args.rope_theta > 10000 ? 8192 : 4096);
  if (args.n_heads % args.n_kv_heads != 0) params.fail("n_kv_heads", "a divisor of n_heads");
  if (args.head_dim % 2 != 0 || args.head_dim < 2) params.fail("dim", "an even multiple of n_heads");
  const bool open = !params.has("vocab_size") || json["vocab_size"] == -1;
  args.vocab_size = open ? checkpoint::open_weights(file.parent_path())->tensor("output.weight").shape.at(0)
                         : params.size("vocab_size");
  return args;
}

std::string to_config_json(const Args& args, Dtype dtype) {
  // The rope options in the published spelling, which every transformers reads.
  nlohmann::ordered_json json = {{"architectures", {"LlamaForCausalLM"}},
                                 {"model_type", "llama"},
                                 {"hidden_size", args.dim},
                                 {"num_hidden_layers", args.n_layers},
                                 {"num_attention_heads", args.n_heads},
                                 {"num_key_value_heads", args.n_kv_heads},
                                 {"head_dim", args.head_dim},
                                 {"intermediate_size", args.ffn_hidden_dim},
                                 {"vocab_size", args.vocab_size},
                                 {"max_position_embeddings", args.max_seq_len},
                                 {"rms_norm_eps", args.norm_eps},
                                 {"rope_theta", args.rope_theta},
                                 {"rope_scaling", nullptr},
                                 {"hidden_act", "silu"},
                                 {"attention_bias", false},
                                 {"attention_dropout", 0.0},
                                 {"mlp_bias", false},
                                 {"initializer_range", 0.02},
                                 {"tie_word_embeddings", args.tied_embeddings},
                                 {"torch_dtype", dtype_name(dtype)},
                                 {"use_cache", true}};
  if (args.rope_scaling) {
    json["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", args.rope_scaling->factor},
                            {"low_freq_factor", args.rope_scaling->low_frequency_factor},
                            {"high_freq_factor", args.rope_scaling->high_frequency_factor},
                            {"original_max_position_embeddings", args.rope_scaling->original_max_position}};
  }
  return json.dump(2);
}

}  // namespace titanium::models::llama3
