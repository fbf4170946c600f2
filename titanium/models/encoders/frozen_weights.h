// Weights of networks that are used but not trained: encoders of texts, autoencoders. They have no parameters, take no
// part in layouts and are whole on every rank.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "titanium/checkpoint/weights_source.h"

namespace titanium::models {

// Gives the weight of that name and shape. Networks ask for theirs once, when they are built.
using FrozenWeights = std::function<Tensor(const std::string& name, const Shape& shape)>;

// From safetensors: a file, or a folder with one file or an index. A name is also found with or without `prefix` before
// it. Throws Error that names the tensor for one that is missing or has another shape.
FrozenWeights read_frozen_weights(const std::filesystem::path& path, Dtype dtype, Device device,
                                  const std::string& prefix = "");

// Made up, for tests without published weights: matrices are uniform with a variance of one over their inputs,
// vectors named "weight" are ones, those named "bias" zeros. A function of seed, name and index.
FrozenWeights random_frozen_weights(uint64_t seed, Dtype dtype, Device device);

}  // namespace titanium::models
