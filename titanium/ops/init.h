// Initial weights. Every element is a function of the seed, the parameter's name and the element's global index, so
// that all layouts start from the same bits, on any device.
#pragma once

#include "titanium/tensor/parameter.h"

namespace titanium::ops {

// Key of a parameter's random numbers (kernels/counter_random.h): its initial weights have this one.
uint64_t parameter_key(const std::string& fqn, uint64_t seed);

// Normal with mean 0, cut at +-cutoff (an absolute value; torchtitan's default is 2). Made in fp32, then cast.
void init_normal(Parameter& parameter, uint64_t seed, double std, double cutoff = 2.0);
// Uniform between -bound and bound. Made in fp32 on the host, then cast and copied.
void init_uniform(Parameter& parameter, uint64_t seed, double bound);
void init_constant(Parameter& parameter, double value);

}  // namespace titanium::ops
