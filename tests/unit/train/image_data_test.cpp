// Which sets of images a run reads: several to validate on, pictures or prepared encodings, and what does not fit.
#include "titanium/train/task/image_data.h"

#include "tests/support/source_folder.h"
#include "tests/support/test_folder.h"
#include "tests/support/threaded_ranks.h"
#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/config/reading/load_config.h"
#include "titanium/models/registry.h"
#include "titanium/train/task/prepare_images.h"
#include "titanium/train/train_state.h"
#include "titanium/train/validate.h"

namespace titanium::train {
namespace {

namespace fs = std::filesystem;

const char* const kTransformer = R"({"in_channels": 16, "attention_head_dim": 16, "num_attention_heads": 2,
  "pooled_projection_dim": 8, "joint_attention_dim": 12, "num_layers": 1, "num_single_layers": 1,
  "axes_dims_rope": [4, 6, 6]})";
const char* const kAutoencoder = R"({"block_out_channels": [8, 8], "layers_per_block": 1, "latent_channels": 4,
  "norm_num_groups": 4})";
const char* const kText =
    R"({"vocab_size": 2048, "d_model": 12, "d_kv": 4, "d_ff": 16, "num_layers": 1, "num_heads": 2})";
const char* const kPooled = R"({"vocab_size": 2048, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 1,
  "num_attention_heads": 2, "eos_token_id": 2})";

fs::path set_of(const std::string& name) { return source_folder() / "tests/assets" / name; }

// A tiny model with made-up encoders. `more` are further tables.
JobConfig configure(const std::string& more, const std::vector<std::string>& options = {}) {
  const fs::path folder = test::test_folder(), assets = folder / "assets";
  if (!fs::exists(assets)) {
    fs::copy(set_of("tokenizer"), assets, fs::copy_options::recursive);
    write_file_atomically(assets / "transformer/config.json", kTransformer);
    write_file_atomically(assets / "vae/config.json", kAutoencoder);
    write_file_atomically(assets / "t5/config.json", kText);
    write_file_atomically(assets / "clip/config.json", kPooled);
  }
  write_file_atomically(folder / "run.toml", more);
  std::vector<std::string> all = {"--job.config_file=" + (folder / "run.toml").string(),
                                  "--job.custom_config_module=torchtitan.models.flux.job_config",
                                  "--model.name=flux",
                                  "--model.flavor=auto",
                                  "--model.hf_assets_path=" + assets.string(),
                                  "--encoder.t5_encoder=" + (assets / "t5").string(),
                                  "--encoder.clip_encoder=" + (assets / "clip").string(),
                                  "--encoder.max_t5_encoding_len=8",
                                  "--training.test_mode",
                                  "--training.img_size=32",
                                  "--training.mixed_precision_param=float32",
                                  "--training.dataset=cc12m-test",
                                  "--training.dataset_path=" + set_of("cc12m_test").string(),
                                  "--training.data_streams=4",
                                  "--validation.dataset=coco-test",
                                  "--validation.dataset_path=" + set_of("coco_test").string(),
                                  "--validation.data_streams=4",
                                  "--validation.local_batch_size=6",
                                  "--validation.enable",
                                  "--validation.steps=-1"};
  all.insert(all.end(), options.begin(), options.end());
  return config::load_config(all).config;
}

std::string source(const std::string& section, const std::string& name, const fs::path& path) {
  return fmt::format("[[{}.sources]]\nname = \"{}\"\npath = \"{}\"\n{}", section, name, path.string(),
                     section == "training" ? "weight = 1\n" : "");
}

fs::path prepare(const fs::path& images, const std::string& name, const std::vector<std::string>& options = {}) {
  JobConfig config = configure("", options);
  config.training.dataset_path = images;
  const fs::path out = test::test_folder() / name;
  prepare_images(config, {.out = out}, at::kCPU);
  return out;
}

// The losses of a model with its first weights, by the names of the sets.
std::map<std::string, double> validation_losses(const JobConfig& config, int ranks) {
  std::map<std::string, double> losses;
  test::run_ranks(ranks, [&](comm::World& world) {
    TrainState run = build_train_state(config, at::kCPU, std::shared_ptr<comm::World>(&world, [](comm::World*) {}),
                                       plan_model(config, world.size(), world.rank()));
    for (const ValidationData& set : run.task->validation_sets()) {
      const double loss = validate(run, *set.data).loss;
      EXPECT_EQ(validate(run, *set.data).loss, loss);  // a set is read from its beginning each time
      if (world.rank() == 0) losses[set.name] = loss;
    }
    run.mesh->host_group("world")->barrier();
  });
  return losses;
}

TEST(ImageData, EachValidationSetHasTheLossThatItHasAlone) {
  const fs::path shapes = set_of("cc12m_test"), others = set_of("coco_test");
  const fs::path encodings = prepare(shapes, "encodings"), other_encodings = prepare(others, "other_encodings");
  const std::vector<std::string> offline = {"--encoder.offline", "--training.dataset_path=" + encodings.string(),
                                            "--validation.save_img_count=0"};
  const auto check = [](const fs::path& first, const fs::path& second, std::vector<std::string> options, int ranks) {
    if (ranks > 1) options.emplace_back("--parallelism.data_parallel_shard_degree=2");
    const auto both = validation_losses(
        configure(source("validation", "first", first) + source("validation", "second", second), options), ranks);
    ASSERT_EQ(both.size(), 2U);
    EXPECT_NE(both.at("first"), both.at("second"));
    for (const auto& [name, path] : {std::pair{"first", first}, {"second", second}}) {
      JobConfig alone = configure("", options);
      alone.validation.dataset_path = path;
      const auto loss = validation_losses(alone, ranks);
      ASSERT_EQ(loss.size(), 1U);
      EXPECT_EQ(loss.at(""), both.at(name)) << name << " on " << ranks;
    }
  };
  for (const int ranks : {1, 2}) {
    check(shapes, others, {}, ranks);
    check(encodings, other_encodings, offline, ranks);
  }
}

TEST(ImageData, AMixOfPreparedSetsHasTheSamplesOfTheMixOfTheirImages) {
  const fs::path shapes = set_of("cc12m_test"), others = set_of("coco_test");
  const auto read = [&](const JobConfig& config) {
    const auto built = models::build_model(config, config.training.seq_len);
    const auto encoders = config.encoder.offline ? std::vector<data::CaptionEncoder>() : caption_encoders(config);
    auto loader = build_image_loader(config, models::as_image_model(*built), encoders, {.rank = 0, .ranks = 1});
    std::vector<std::tuple<int64_t, std::string, bool, bool>> samples;
    for (int64_t i = 0; i < 12; ++i) {
      const data::ImageBatch batch = loader->next().value();
      for (size_t row = 0; row < batch.numbers.size(); ++row)
        samples.emplace_back(batch.numbers[row], batch.captions[row], batch.left_out[0][row], batch.left_out[1][row]);
    }
    return samples;
  };
  const std::vector<std::string> guided = {"--training.classifier_free_guidance_prob=0.4"};
  const auto images =
      read(configure(source("training", "shapes", shapes) + source("training", "others", others), guided));
  const std::string prepared = source("training", "shapes", prepare(shapes, "encodings")) +
                               source("training", "others", prepare(others, "other_encodings"));
  EXPECT_EQ(read(configure(prepared, {guided[0], "--encoder.offline"})), images);
}

TEST(ImageData, SourcesThatDoNotFitAreNamed) {
  const fs::path encodings = prepare(set_of("cc12m_test"), "encodings");
  const fs::path larger = prepare(set_of("coco_test"), "larger", {"--training.img_size=64"});
  const std::vector<std::string> offline = {"--encoder.offline", "--validation.save_img_count=0"};
  const std::string all = source("training", "good", encodings) + source("training", "larger", larger) +
                          source("training", "pictures", set_of("coco_test")) +
                          source("validation", "held out", larger);
  EXPECT_EQ(
      check_image_files(configure(all, offline)),
      (std::vector<std::string>{
          fmt::format("Source larger of training.sources: {} was prepared with training.img_size = 64, but the run has "
                      "32. Prepare the images with the run's options, or use the folder's.",
                      larger.string()),
          fmt::format("Source pictures of training.sources: {} has no prepared.json: encoder.offline reads folders of "
                      "titanium data prepare-images. Make one, or set encoder.offline = false.",
                      set_of("coco_test").string()),
          fmt::format("Source held out of validation.sources: {} was prepared with training.img_size = 64, but the run "
                      "has 32. Prepare the images with the run's options, or use the folder's.",
                      larger.string())}));
  EXPECT_EQ(check_image_files(
                configure(source("training", "good", encodings) + source("validation", "a", encodings), offline)),
            std::vector<std::string>());
  EXPECT_EQ(check_image_files(
                configure(source("training", "good", set_of("cc12m_test")) + source("training", "made", encodings))),
            (std::vector<std::string>{
                fmt::format("Source made of training.sources: {} holds encodings of images that were prepared, not "
                            "images. Set encoder.offline = true to train from them.",
                            encodings.string())}));
}

TEST(ImageData, OneSetIsPreparedAtATime) {
  const auto complaint = [](const std::string& section, bool validation) -> std::string {
    const fs::path out = test::test_folder() / "out";
    try {
      prepare_images(configure(source(section, "a", set_of("coco_test"))), {.out = out, .validation = validation},
                     at::kCPU);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(complaint("training", false),
            "training.sources has several data sets, and one is prepared at a time. Set --training.sources=[] and "
            "--training.dataset_path to one of them.");
  EXPECT_EQ(complaint("validation", true),
            "validation.sources has several data sets, and one is prepared at a time. Set --validation.sources=[] and "
            "--validation.dataset_path to one of them.");
  EXPECT_EQ(complaint("validation", false), "");  // those of validation are not asked for
}

}  // namespace
}  // namespace titanium::train
