// For parity/tensorboard_events.py: a short run with known numbers.
//
//   tensorboard_events_driver DUMP_FOLDER
#include <fmt/format.h>

#include <array>
#include <iostream>

#include "titanium/data/image/decode.h"
#include "titanium/train/report/metrics.h"

namespace {

// Three by two pixels, all of one grey.
titanium::observe::ShownImage grey_image(const std::string& caption, uint8_t grey) {
  std::array<uint8_t, 3 * 2 * 3> pixels{};
  pixels.fill(grey);
  return {.file = caption + ".png",
          .caption = caption,
          .width = 3,
          .height = 2,
          .png = titanium::data::encode_png(3, 2, pixels)};
}

}  // namespace

int main(int argc, char** argv) {
  using namespace titanium::train;
  if (argc != 2) {
    std::cerr << "usage: tensorboard_events_driver DUMP_FOLDER\n";
    return 2;
  }
  double now = 0;
  const MemoryPeak memory{.max_active_gib = 1,
                          .max_active_percent = 10,
                          .max_reserved_gib = 2,
                          .max_reserved_percent = 20,
                          .alloc_retries = 3,
                          .ooms = 4};
  Metrics metrics({.log_freq = 5,
                   .enable_tensorboard = true,
                   .dump_folder = argv[1],
                   .flops_per_token = 6e9,
                   .peak_flops = 100e12,
                   .non_data_parallel_size = 4},
                  {.clock = [&] { return now; }, .memory_peak = [&] { return memory; }, .reset_memory_peak = [] {}});
  for (int64_t step = 1; step <= 1000; ++step) {
    now += 1;
    metrics.count_tokens(8000);
    metrics.count_data_loading(0.25);
    if (metrics.should_log(step)) {
      metrics.log({.step = step,
                   .loss = 1.0 / static_cast<double>(step),
                   .max_loss = 2.0 / static_cast<double>(step),
                   .grad_norm = 0.5,
                   .lr = 1e-4,
                   .tokens_seen = 8000 * step,
                   .finished = now},
                  metrics.end_interval());
    }
    if (step % 500 == 0) {
      metrics.begin_validation();
      now += 2;
      metrics.count_tokens(16'000);
      metrics.log_validation(step, 0.75);
      metrics.begin_validation();
      now += 3;
      const std::array images = {grey_image("a *red* circle", static_cast<uint8_t>(step / 10)),
                                 grey_image("a blue square", 7)};
      metrics.log_images(step, images);
    }
  }
  return 0;
}
