#include "titanium/config/schema/flux_schema.h"

namespace titanium::config {

void declare_flux(Schema& schema) {
  const auto flux = Extension::kFlux;
  Section<Encoder> encoder(schema, "encoder", "Encoders of the Flux extension.", &JobConfig::encoder);
  encoder.option("t5_encoder", &Encoder::t5_encoder, "T5 model: folder or Hugging Face name.").of(flux);
  encoder.option("clip_encoder", &Encoder::clip_encoder, "CLIP model: folder or Hugging Face name.").of(flux);
  encoder.option("autoencoder_path", &Encoder::autoencoder_path, "Safetensors file of the autoencoder.").of(flux);
  encoder.option("max_t5_encoding_len", &Encoder::max_t5_encoding_len, "Tokens of a T5 encoding.").at_least(1).of(flux);
  encoder
      .option(
          "offline", &Encoder::offline,
          "Train from encodings that titanium data prepare-images has written; dataset_path names their folder, and no "
          "encoder is loaded.")
      .own();
  encoder
      .option("sharded", &Encoder::sharded,
              "Cut the blocks of the T5 encoder over the ranks of FSDP, and gather them one after the other.")
      .own();
  encoder.option("on_cpu", &Encoder::on_cpu, "Keep both encoders of captions in host memory, and run them on the CPU.")
      .own();
  Section<Inference> inference(schema, "inference", "Sampling with the Flux extension.", &JobConfig::inference);
  inference.option("save_img_folder", &Inference::save_img_folder, "Folder of the images.").of(flux);
  inference.option("prompts_path", &Inference::prompts_path, "File with one prompt per line.").of(flux);
  inference.option("local_batch_size", &Inference::local_batch_size, "Prompts at once.").at_least(1).of(flux);
  inference.option("img_size", &Inference::img_size, "Width and height of the images.").at_least(1).of(flux);
}

}  // namespace titanium::config
