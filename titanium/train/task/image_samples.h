// Images that a run draws while it trains.
#pragma once

#include "titanium/train/task/image_batch.h"
#include "titanium/train/task/image_data.h"

namespace titanium::train {

constexpr size_t kShownImages = 64;

// Draws images for the first captions of validation.dataset, or of the first of validation.sources,
// validation.save_img_count of them (-1: for all), and writes them as image_step<step>_<number>.png into
// validation.save_img_folder of job.dump_folder. On all ranks together; every layout draws the same ones, and the first
// rank writes them. It gets the first kShownImages of them to report, other ranks none.
std::vector<observe::ShownImage> draw_validation_images(const JobConfig& config, const ImagePlace& place,
                                                        const parallel::Mesh& mesh,
                                                        const std::vector<data::CaptionEncoder>& encoders,
                                                        int64_t step);

}  // namespace titanium::train
