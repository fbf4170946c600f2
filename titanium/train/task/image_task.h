// Images with captions; the velocity of a rectified flow is predicted from noisy latents.
#pragma once

#include "titanium/train/task/task.h"

namespace titanium::train {

// For image models. Reads archives of images (data/image/), encodes them and their captions with frozen networks
// (image_encoders.h), and sums squared errors of the velocity (image_batch.h). The weight of a batch is the number of
// its latents' elements. Training data begins again at its end; with probability
// training.classifier_free_guidance_prob each encoder of captions gets an empty one instead. Validation sees each
// sample at one of eight times, in turns, or with validation.all_timesteps at all of them.
TaskSpec image_task();

}  // namespace titanium::train
