// Batches of images: from pixels and tokens to what the model reads, and the loss of a rectified flow.
#pragma once

#include "titanium/train/task/encode_images.h"
#include "titanium/train/task/task.h"

namespace titanium::train {

// At which times t, from 0 (the image) to 1 (noise), samples are seen.
enum class FlowTimes {
  kUniform,      // anywhere
  kLogitNormal,  // more in the middle: the logit is standard normal
  kStratified,   // the middle of one of 8 equal stretches, in turns
  kAll,          // each sample at the middles of all 8
};
constexpr int64_t kTimeStrata = 8;

// Note [Noise of a sample]
// The noise of a sample, that of its autoencoder and its time are functions of the seed and of the sample's number in
// the run (data::ImageBatch). So every layout trains on the same numbers, and a run that goes on sees those that it
// would have seen.

// What batches need to run through the model. What it refers to outlives them.
struct ImagePlace {
  models::ImageModel& model;
  const ImageEncoders& encoders;
  ops::SequenceShare share;
  Device device;
  uint64_t seed;
  FlowTimes times = FlowTimes::kUniform;

  // The number of patches of one image, and of the elements of their latents that this rank has.
  int64_t patches(int64_t pixels) const;
  int64_t values_here(int64_t pixels) const;
};

// Samples on the device. The encoders have run.
class ImageMicroBatch : public MicroBatch {
 public:
  ImageMicroBatch(const data::ImageBatch& batch, const ImagePlace& place);

  ops::Tensors run_stage(const models::ModelStage& stage, const ops::Tensors& inputs, double scale) const override;
  std::vector<parallel::HiddenStates> hidden_states() const override;  // there are none: the model has one stage

  const models::ImageBatch& inputs() const { return inputs_; }
  const Tensor& target() const { return target_BSP_; }

 private:
  models::ImageModel& model_;
  models::ImageBatch inputs_;
  Tensor target_BSP_;
  int64_t counted_ = 0;  // rows, the first ones
};

// The weight of a batch is the number of its latents' elements.
BatchPtr make_image_batch(data::ImageBatch batch, const ImagePlace& place);

}  // namespace titanium::train
