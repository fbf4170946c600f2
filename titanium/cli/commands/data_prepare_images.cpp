// titanium data prepare-images: encodes a set of images once.
#include "titanium/base/error.h"
#include "titanium/base/terminal/progress.h"
#include "titanium/base/text/thousands.h"
#include "titanium/cli/command_line.h"
#include "titanium/cli/commands/data_commands.h"
#include "titanium/cli/commands/train.h"
#include "titanium/config/reading/load_config.h"
#include "titanium/models/registry.h"
#include "titanium/train/task/prepare_images.h"
#include "titanium/train/train_state.h"

namespace titanium::cli {

int prepare_image_data(Arguments args) {
  train::ImagePreparation preparation;
  std::string out;
  CommandLine app(
      "Encodes a set of images and captions once, with the autoencoder and the encoders of the configuration, into a\n"
      "folder to train from with encoder.offline. All options of titanium train are taken too. A preparation that was\n"
      "stopped goes on when it is started again.",
      "titanium data prepare-images");
  app.take_run_options();
  app.option("--out", out, "Folder for the encodings").required();
  app.flag("--validation", preparation.validation, "Encode validation.dataset instead of training.dataset");
  app.option("--batch", preparation.batch, "Images at once").shows_default().between(1, 65536);
  app.option("--shard-samples", preparation.shard_samples, "Samples of an archive, at least")
      .shows_default()
      .between(1, 1'000'000);
  if (!app.parse(args)) return 0;
  preparation.out = out;
  const JobConfig config = config::load_config(app.run_options()).config;
  const Device device = parse_device(config.training.device, /*local_rank=*/0);
  show_log();
  std::optional<Progress> bar;
  const train::ImagePreparationCounts counts = train::prepare_images(config, preparation, device, [&](int64_t images) {
    if (!bar) bar.emplace("encoding images", Progress::kUnknownTotal);
    bar->update(images);
  });
  bar.reset();
  fmt::print("{} has {} samples, {} of them from before; {} images were too small, {} records were bad.\n", out,
             with_thousands_separators(counts.samples), with_thousands_separators(counts.kept_samples),
             with_thousands_separators(counts.small_images), with_thousands_separators(counts.bad_records));
  return 0;
}

}  // namespace titanium::cli
