#include "titanium/train/task/prepare_images.h"

#include <fstream>
#include <nlohmann/json.hpp>

#include "titanium/base/bundled.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/base/log.h"
#include "titanium/base/text/json.h"
#include "titanium/checkpoint/safetensors/header.h"
#include "titanium/checkpoint/safetensors/reader.h"
#include "titanium/checkpoint/weights_source.h"
#include "titanium/data/format/tar_members.h"
#include "titanium/models/registry.h"
#include "titanium/train/task/encode_images.h"
#include "titanium/train/task/image_data.h"
#include "titanium/train/train_state.h"

namespace titanium::train {
namespace {

namespace fs = std::filesystem;
constexpr const char* kStateFile = ".state.json";

// Nothing where there are none on this machine: those of the hub are not fetched for it.
std::string fingerprint_of_weights(const fs::path& path) {
  const bool here =
      fs::is_regular_file(path) || checkpoint::find_safetensors(path) || fs::exists(path / "pytorch_model.bin");
  return here ? checkpoint::fingerprint(*checkpoint::open_weights(path)) : "";
}

data::PreparedNetwork identity(const JobConfig& config, const std::string& name) {
  if (config.training.test_mode) return {fmt::format("made up by seed {}", weight_seed(config.debug)), ""};
  const fs::path path = name;
  return {(path.has_filename() ? path : path.parent_path()).filename().string(), fingerprint_of_weights(bundled(path))};
}

data::PreparedDescription description_of(const JobConfig& config) {
  data::PreparedDescription description;
  description.sizes.img_size = config.training.img_size;
  description.sizes.text_tokens = config.encoder.max_t5_encoding_len;
  description.sizes.dtype = config.training.mixed_precision_param;
  description.t5_encoder = identity(config, config.encoder.t5_encoder);
  description.clip_encoder = identity(config, config.encoder.clip_encoder);
  description.autoencoder = identity(config, config.encoder.autoencoder_path);
  description.seed = static_cast<int64_t>(weight_seed(config.debug));
  return description;
}

// Tensors that are rows of host tensors, as a safetensors file.
std::string to_safetensors(const std::vector<std::pair<std::string, Tensor>>& tensors) {
  checkpoint::SafetensorsHeader header;
  std::string bytes;
  for (const auto& [name, tensor] : tensors) {
    const Tensor host = tensor.to(at::kCPU).contiguous();
    const uint64_t begin = bytes.size();
    bytes.append(static_cast<const char*>(host.const_data_ptr()), host.nbytes());
    header.entries.push_back(
        {name, host.scalar_type(), Shape(host.sizes().begin(), host.sizes().end()), begin, bytes.size()});
  }
  return checkpoint::format_safetensors_header(header) + bytes;
}

// Archives one after the other, with a record of how far they go.
class Shards {
 public:
  Shards(const fs::path& folder, data::PreparedDescription description, int64_t shard_samples)
      : folder_(folder), description_(std::move(description)), shard_samples_(shard_samples) {
    const fs::path state = folder_ / kStateFile;
    if (!fs::exists(state)) {
      TI_CHECK(!fs::exists(folder_ / data::kPreparedShards),
               "{} holds archives that this preparation has not begun. Name another folder.", folder_.string());
      return;
    }
    try {
      const nlohmann::json json = parse_json(read_file(state, "state of a preparation"));
      if (json.at("description") != data::to_json(description_) || json.at("shard_samples") != shard_samples_) {
        throw UsageError(
            fmt::format("{} was begun with other data, encoders or options. Name another folder, or empty this one.",
                        folder_.string()));
      }
      description_.samples = integer_of(json.at("samples"));
      shards_ = integer_of(json.at("shards"));
      position_ = json.at("position").get<std::string>();
    } catch (const JsonError& error) {
      throw Error(fmt::format("{} {}. Empty the folder and prepare the images again.", state.string(), error.what()));
    } catch (const nlohmann::json::exception&) {
      throw Error(fmt::format("{} is damaged. Empty the folder and prepare the images again.", state.string()));
    }
  }

  // Where the loader was after the last archive; empty at the beginning.
  const std::string& position() const { return position_; }
  int64_t samples() const { return description_.samples + in_shard_; }
  int64_t shards() const { return shards_; }

  void add(const std::string& tensors, const std::string& caption) {
    if (in_shard_ == 0) open();
    const std::string key = fmt::format("{:09}", samples());
    write(data::tar_member(key + ".safetensors", tensors));
    write(data::tar_member(key + ".txt", caption));
    ++in_shard_;
  }

  // At the end of a batch; `position` is the loader's.
  void after_batch(const std::string& position, bool is_last) {
    if (in_shard_ == 0 || (in_shard_ < shard_samples_ && !is_last)) return;
    write(data::tar_end());
    file_.close();
    TI_CHECK(file_.good(), "{} cannot be written. Check permissions and free space.", temporary().string());
    fs::rename(temporary(), folder_ / data::kPreparedShards / fmt::format("{:05}.tar", shards_));
    description_.samples += std::exchange(in_shard_, 0);
    ++shards_;
    write_state(position);
    log_info("Prepared {} images in {} archives", description_.samples, shards_);
  }

  void finish() {
    TI_CHECK(description_.samples > 0, "No image of the data set can be used: nothing was prepared.");
    write_file_atomically(folder_ / data::kPreparedFile, data::to_json(description_));
    fs::remove(folder_ / kStateFile);
  }

 private:
  fs::path temporary() const { return folder_ / data::kPreparedShards / ".unfinished"; }
  data::PreparedDescription fresh() const {
    data::PreparedDescription description = description_;
    description.samples = 0;
    return description;
  }
  void write_state(const std::string& position) const {
    const nlohmann::json state = {{"description", data::to_json(fresh())},
                                  {"shard_samples", shard_samples_},
                                  {"samples", description_.samples},
                                  {"shards", shards_},
                                  {"position", position}};
    write_file_atomically(folder_ / kStateFile, state.dump());
  }
  void open() {
    if (shards_ == 0) write_state("");  // so that archives without a state are never of a preparation
    fs::create_directories(folder_ / data::kPreparedShards);
    file_ = std::ofstream(temporary(), std::ios::binary | std::ios::trunc);
  }
  void write(const std::string& bytes) {
    file_.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    TI_CHECK(file_.good(), "{} cannot be written. Check permissions and free space.", temporary().string());
  }

  fs::path folder_;
  data::PreparedDescription description_;  // with the samples of whole archives
  int64_t shard_samples_;
  int64_t shards_ = 0, in_shard_ = 0;
  std::string position_;
  std::ofstream file_;
};

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

NamedTensors row_of(const EncodedCaptions& captions, int64_t row) {
  return {{"t5_encodings", captions.text_BLC[row]}, {"clip_encodings", captions.pooled_BY[row]}};
}

void add_batch(Shards& shards, const data::ImageBatch& batch, const EncodedImages& encoded) {
  const std::vector<Tensor> moments = encoded.moments_Bmhw.to(at::kCPU).chunk(2, 1);
  const EncodedCaptions captions{encoded.captions.text_BLC.to(at::kCPU), encoded.captions.pooled_BY.to(at::kCPU)};
  for (int64_t row = 0; row < batch.count; ++row) {
    NamedTensors tensors = {{"mean", moments[0][row]}, {"logvar", moments[1][row]}};
    for (auto& named : row_of(captions, row)) tensors.push_back(std::move(named));
    shards.add(to_safetensors(tensors), batch.captions[static_cast<size_t>(row)]);
  }
}

void require_equal(const fs::path& folder, const char* option, const auto& found, const auto& wanted) {
  if (found == wanted) return;
  throw UsageError(
      fmt::format("{} was prepared with {} = {}, but the run has {}. Prepare the images with the run's "
                  "options, or use the folder's.",
                  folder.string(), option, found, wanted));
}

void require_same_network(const fs::path& folder, const char* option, const data::PreparedNetwork& found,
                          const data::PreparedNetwork& wanted) {
  require_equal(folder, option, found.name, wanted.name);
  if (found.weights.empty() || wanted.weights.empty()) return;
  const auto described = [](const data::PreparedNetwork& network) {
    return fmt::format("{} with weights {}", network.name, network.weights);
  };
  require_equal(folder, option, described(found), described(wanted));
}

}  // namespace

ImagePreparationCounts prepare_images(const JobConfig& config, const ImagePreparation& preparation, Device device,
                                      const std::function<void(int64_t images)>& on_images) {
  const auto built = models::build_model(config, config.training.seq_len);
  models::ImageModel& model = models::as_image_model(*built);
  model.compute_dtype = compute_dtype(config);
  check_image_size(config, model);
  const auto tokenizers = caption_encoders(config);
  const auto loader =
      build_image_preparation_loader(config, model, tokenizers, preparation.validation, preparation.batch);
  data::PreparedDescription description = description_of(config);
  description.sizes.latent_channels = model.autoencoder().latent_channels;
  description.sizes.latent_side = config.training.img_size / model.autoencoder().pixels();
  description.sizes.text_width = model.text_width();
  description.sizes.pooled_width = model.pooled_width();
  description.fingerprint = loader->fingerprint();
  description.streams = loader->streams();
  if (data::is_prepared(preparation.out)) {
    data::PreparedDescription there = data::open_prepared_images(preparation.out).description;
    const int64_t samples = std::exchange(there.samples, 0);
    if (there == description) return {.samples = samples, .kept_samples = samples};
    throw UsageError(
        fmt::format("{} holds images that were prepared from other data or with other options. Name "
                    "another folder.",
                    preparation.out.string()));
  }
  Shards shards(preparation.out, description, preparation.shard_samples);
  ImagePreparationCounts counts{.kept_samples = shards.samples()};
  if (!shards.position().empty()) loader->load(data::loader_state_from_json(shards.position()));
  const ImageEncoders encoders = load_image_encoders(config, model, device);
  const auto empty = captions_of(data::rows_of(loader->empty_batch(), 0, 1), encoders, model, device);
  write_file_atomically(preparation.out / data::kEmptyCaptionFile, to_safetensors(row_of(empty, 0)));
  for (auto batch = loader->next(); batch; batch = loader->next()) {
    add_batch(shards, *batch, encode_images(*batch, encoders, model, device));
    shards.after_batch(data::to_json(loader->state()), /*is_last=*/false);
    if (on_images) on_images(shards.samples() - counts.kept_samples + loader->small_images() + loader->bad_records());
  }
  shards.after_batch(data::to_json(loader->state()), /*is_last=*/true);
  shards.finish();
  counts.samples = shards.samples();
  counts.shards = shards.shards();
  counts.small_images = loader->small_images();
  counts.bad_records = loader->bad_records();
  return counts;
}

std::shared_ptr<const data::PreparedImages> open_prepared(const JobConfig& config, const fs::path& folder) {
  auto prepared = std::make_shared<data::PreparedImages>(data::open_prepared_images(folder));
  const data::PreparedDescription &found = prepared->description, wanted = description_of(config);
  require_same_network(folder, "encoder.t5_encoder", found.t5_encoder, wanted.t5_encoder);
  require_same_network(folder, "encoder.clip_encoder", found.clip_encoder, wanted.clip_encoder);
  require_same_network(folder, "encoder.autoencoder_path", found.autoencoder, wanted.autoencoder);
  require_equal(folder, "training.img_size", found.sizes.img_size, wanted.sizes.img_size);
  require_equal(folder, "encoder.max_t5_encoding_len", found.sizes.text_tokens, wanted.sizes.text_tokens);
  require_equal(folder, "training.mixed_precision_param", found.sizes.dtype, wanted.sizes.dtype);
  return prepared;
}

void check_prepared_sizes(const data::PreparedImages& prepared, const models::ImageModel& model) {
  const data::PreparedSizes& sizes = prepared.description.sizes;
  const models::AutoencoderArgs& args = model.autoencoder();
  if (sizes.text_width == model.text_width() && sizes.pooled_width == model.pooled_width() &&
      sizes.latent_channels == args.latent_channels && sizes.latent_side == sizes.img_size / args.pixels()) {
    return;
  }
  throw UsageError(fmt::format(
      "{} has encodings of {} and {} columns and {} channels of {} x {}, but the model takes {} and {} columns and {} "
      "channels of {} x {}. Prepare the images for this model.",
      prepared.shards.parent_path().string(), sizes.text_width, sizes.pooled_width, sizes.latent_channels,
      sizes.latent_side, sizes.latent_side, model.text_width(), model.pooled_width(), args.latent_channels,
      sizes.img_size / args.pixels(), sizes.img_size / args.pixels()));
}

}  // namespace titanium::train
