#include "titanium/train/inference/draw_images.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <c10/core/GradMode.h>

#include <cmath>

#include "titanium/base/error.h"
#include "titanium/base/files/file.h"
#include "titanium/data/image/decode.h"
#include "titanium/ops/counter_normal.h"
#include "titanium/ops/init.h"
#include "titanium/ops/sequence_share.h"

namespace titanium::train {
namespace {

// All rows [B, S, P] from those that each rank has.
Tensor all_rows(const Tensor& rows_BsP, const ops::SequenceShare& share, const parallel::Mesh* mesh) {
  if (share.ranks == 1) return rows_BsP;
  const Tensor whole =
      at::zeros({rows_BsP.size(0), rows_BsP.size(1) * share.ranks, rows_BsP.size(2)}, rows_BsP.options());
  const std::vector<int64_t> chunks = ops::chunks_of(share, share.rank);
  const int64_t length = rows_BsP.size(1) / static_cast<int64_t>(chunks.size());
  // All ranks that share a sequence draw the same, and so do the others: the first of each kind adds its rows.
  for (size_t i = 0; i < chunks.size() && mesh->rank("batch") == 0; ++i) {
    const Tensor mine = rows_BsP.narrow(1, static_cast<int64_t>(i) * length, length);
    whole.narrow(1, chunks[i] * length, length).copy_(mine);
  }
  mesh->reduce("loss", whole, comm::Reduce::kSum);
  return whole;
}

}  // namespace

std::vector<double> flow_times(int64_t steps, int64_t patches) {
  const double m = 0.5 + (1.15 - 0.5) * static_cast<double>(patches - 256) / (4096 - 256);
  std::vector<double> times;
  for (int64_t i = 0; i < steps; ++i) {
    const double t = 1 - static_cast<double>(i) / static_cast<double>(steps);
    times.push_back(std::exp(m) / (std::exp(m) + 1 / t - 1));
  }
  times.push_back(0);
  return times;
}

Tensor draw_images(models::ImageModel& model, const models::Autoencoder& autoencoder, const DrawnCaptions& captions,
                   const DrawOptions& options, Device device, const parallel::Mesh* mesh,
                   const ops::SequenceShare& share) {
  const c10::AutoGradMode no_grad(false);
  const models::AutoencoderArgs& args = autoencoder.args();
  const auto count = static_cast<int64_t>(captions.numbers.size());
  const int64_t side = options.pixels / args.pixels(), rows = side / 2;
  EncodedCaptions encoded = captions.captions;
  const int64_t text_tokens = encoded.text_BLC.size(1);
  if (options.guidance) {
    const EncodedCaptions& empty = captions.empty;
    encoded = {at::cat({encoded.text_BLC, empty.text_BLC.expand_as(encoded.text_BLC)}),
               at::cat({encoded.pooled_BY, empty.pooled_BY.expand_as(encoded.pooled_BY)})};
  }
  const Tensor noise = ops::counter_normal(ops::parameter_key("drawn.noise", options.seed), captions.numbers,
                                           args.latent_channels * side * side, device);
  Tensor latents = ops::share_of(models::pack_latents(noise.view({count, args.latent_channels, side, side})), 1, share);
  const Tensor text = ops::share_of(encoded.text_BLC, 1, share);
  const std::vector<double> times = flow_times(options.steps, rows * rows);
  for (size_t i = 0; i + 1 < times.size(); ++i) {
    Tensor velocity = model
                          .velocity({.latents_BSP = options.guidance ? latents.repeat({2, 1, 1}) : latents,
                                     .text_BLC = text,
                                     .pooled_BY = encoded.pooled_BY,
                                     .times_B = at::full({text.size(0)}, times[i], latents.options()),
                                     .rows = rows,
                                     .columns = rows,
                                     .text_tokens = text_tokens})
                          .to(at::kFloat);
    if (options.guidance) {
      const Tensor with = velocity.narrow(0, 0, count), without = velocity.narrow(0, count, count);
      velocity = without + *options.guidance * (with - without);
    }
    latents = latents + (times[i + 1] - times[i]) * velocity;
  }
  const Tensor whole = models::unpack_latents(all_rows(latents, share, mesh), rows, rows);
  return autoencoder.decode(whole).to(at::kFloat).clamp(-1, 1);
}

observe::ShownImage write_image(const std::filesystem::path& path, const Tensor& image_3HW,
                                const std::string& caption) {
  const Tensor pixels =
      ((image_3HW.clamp(-1, 1) + 1) * 127.5).to(at::kByte).permute({1, 2, 0}).contiguous().to(at::kCPU);
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  TI_CHECK(!error, "{} cannot be made: {}. Check permissions and free space.", path.parent_path().string(),
           error.message());
  const std::vector<std::pair<std::string, std::string>> texts = {{"Description", caption}};
  const int64_t width = pixels.size(1), height = pixels.size(0);
  std::string png =
      data::encode_png(width, height, {pixels.const_data_ptr<uint8_t>(), static_cast<size_t>(pixels.numel())}, texts);
  write_file_atomically(path, png);
  return {.file = path, .caption = caption, .width = width, .height = height, .png = std::move(png)};
}

}  // namespace titanium::train
