#include "titanium/models/flux/args.h"

#include <algorithm>
#include <numeric>

namespace titanium::models::flux {
namespace {

const ArgFields<Args>& fields() {
  static const ArgFields<Args> fields = {
      field<Args>("in_channels", &Args::in_channels, "in_channels"),
      field<Args>("vec_in_dim", &Args::vec_in_dim, "pooled_projection_dim"),
      field<Args>("context_in_dim", &Args::context_in_dim, "joint_attention_dim"),
      field<Args>("num_heads", &Args::num_heads, "num_attention_heads"),
      field<Args>("depth", &Args::depth, "num_layers"),
      field<Args>("depth_single_blocks", &Args::depth_single_blocks, "num_single_layers"),
      field<Args>("hidden_size", &Args::hidden_size),
      field<Args>("mlp_ratio", &Args::mlp_ratio),
      field<Args>("theta", &Args::theta),
      field<Args>("qkv_bias", &Args::qkv_bias),
      field<Args>("guidance_embed", &Args::guidance_embed, "guidance_embeds", [](const Args&) { return false; }),
      logged_field<Args>("axes_dim", [](const Args& args) { return nlohmann::ordered_json(args.axes_dim); }),
  };
  return fields;
}

Args debug() {
  Args args;
  args.hidden_size = 1536;
  args.num_heads = 12;
  args.depth = 2;
  args.depth_single_blocks = 2;
  return args;
}

}  // namespace

const std::map<std::string, Args>& flavors() {
  static const std::map<std::string, Args> flavors = {
      {"flux-debug", debug()}, {"flux-dev", Args()}, {"flux-schnell", Args()}};
  return flavors;
}

std::string describe(const Args& args) { return to_json(args, fields()); }

Args args_from_config_json(const std::filesystem::path& file) {
  const nlohmann::json json = read_json_object(file, "the sizes of a Flux transformer");
  const JsonReader config(file.string(), json);
  Args args;
  read_config_json(config, args, fields());
  if (config.has("axes_dims_rope")) args.axes_dim = config.numbers("axes_dims_rope");
  const int64_t rotated = std::accumulate(args.axes_dim.begin(), args.axes_dim.end(), int64_t{0});
  const int64_t head_dim = config.size_or("attention_head_dim", 128);
  args.hidden_size = head_dim * args.num_heads;
  if (args.axes_dim.size() != 3 || rotated != head_dim) {
    config.fail("axes_dims_rope", fmt::format("three numbers that add up to attention_head_dim = {}", head_dim));
  }
  return args;
}

AutoencoderArgs autoencoder_from_config_json(const std::filesystem::path& file) {
  const nlohmann::json json = read_json_object(file, "the sizes of an autoencoder");
  const JsonReader config(file.string(), json);
  AutoencoderArgs args;
  const std::vector<int64_t> channels = config.numbers("block_out_channels");
  const bool good = !channels.empty() && channels.size() <= 8 && channels[0] >= 1 &&
                    std::ranges::all_of(channels, [&](int64_t wide) { return wide >= 1 && wide % channels[0] == 0; });
  if (!good) config.fail("block_out_channels", "one to eight multiples of its first number");
  args.channels = channels[0];
  args.multipliers.clear();
  for (const int64_t wide : channels) args.multipliers.push_back(wide / channels[0]);
  args.image_channels = config.size_or("in_channels", args.image_channels);
  if (args.image_channels != 3) config.fail("in_channels", "3, for red, green and blue");
  args.residual_blocks = config.size_or("layers_per_block", args.residual_blocks);
  args.latent_channels = config.size_or("latent_channels", args.latent_channels);
  args.groups = config.size_or("norm_num_groups", args.groups);
  if (args.channels % args.groups != 0) config.fail("norm_num_groups", "a divisor of the first of block_out_channels");
  args.scale = config.positive_or("scaling_factor", args.scale);
  args.shift = config.has("shift_factor") ? config.number("shift_factor") : 0;
  return args;
}

std::string to_config_json(const Args& args) {
  nlohmann::ordered_json json = {{"_class_name", "FluxTransformer2DModel"}};
  add_to_config_json(json, args, fields());
  json["attention_head_dim"] = args.head_dim();
  json["axes_dims_rope"] = args.axes_dim;
  json["patch_size"] = 1;
  return json.dump(2) + "\n";
}

}  // namespace titanium::models::flux
