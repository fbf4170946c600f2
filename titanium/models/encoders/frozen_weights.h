// Weights of networks that are used but not trained: encoders of texts, autoencoders. They have no parameters and take
// no part in layouts; sharded_weights.h cuts some of them.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "titanium/checkpoint/weights_source.h"

namespace titanium::models {

// Gives the weight of that name and shape. Networks ask for theirs once, when they are built.
using FrozenWeights = std::function<Tensor(const std::string& name, const Shape& shape)>;

// Reads safetensors: a file, or a folder with one file or an index. A name is also found with or without `prefix`
// before it. Throws Error that names the tensor for one that is missing or has another shape.
FrozenWeights read_frozen_weights(const std::filesystem::path& path, Dtype dtype, Device device,
                                  const std::string& prefix = "");

// Random weights for tests without published ones: matrices are uniform with a variance of one over their inputs,
// vectors named "weight" are ones, those named "bias" zeros. A function of seed, name and index.
FrozenWeights random_frozen_weights(uint64_t seed, Dtype dtype, Device device);

// Counts what a network asks for, and gives tensors without memory: so its size is known before anything is read.
FrozenWeights counted_frozen_weights(Dtype dtype, int64_t& bytes);

}  // namespace titanium::models
