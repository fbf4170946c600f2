// The arithmetic of kernels/adamw.h for one element, for host and device.
#pragma once

#include <cmath>

#include "titanium/kernels/adamw.h"
#include "titanium/kernels/counter_random.h"

namespace titanium::kernels {

// The logarithms of the betas, which the host prepares.
struct LogBetas {
  explicit LogBetas(const AdamWArgs& args)
      : log_beta1(static_cast<float>(std::log(args.beta1))), log_beta2(static_cast<float>(std::log(args.beta2))) {}
  float log_beta1;
  float log_beta2;
};

// The numbers of one update, the same for all elements.
struct AdamWUpdate {
  // `args` points at what the caller can read.
  TI_HOST_DEVICE AdamWUpdate(const AdamWArgs& args, const LogBetas& logs, float step) {
    decay = static_cast<float>(args.decoupled ? args.learning_rate * args.weight_decay : args.weight_decay);
    keep1 = static_cast<float>(1 - args.beta1);
    beta2 = static_cast<float>(args.beta2);
    keep2 = static_cast<float>(1 - args.beta2);
    step_size = static_cast<float>(args.learning_rate) / bias_correction(logs.log_beta1, step);
    root2 = 1 / ::sqrtf(bias_correction(logs.log_beta2, step));
    eps = static_cast<float>(args.eps);
    clip_scale = args.clip_scale != nullptr ? *args.clip_scale : 1.0F;
    decoupled = args.decoupled;
  }

  TI_HOST_DEVICE void apply(float gradient, float& parameter, float& exp_avg, float& exp_avg_sq) const {
    gradient *= clip_scale;
    if (decoupled) {
      parameter -= decay * parameter;
    } else {
      gradient += decay * parameter;
    }
    exp_avg += keep1 * (gradient - exp_avg);
    exp_avg_sq = beta2 * exp_avg_sq + keep2 * gradient * gradient;
    parameter -= step_size * exp_avg / (::sqrtf(exp_avg_sq) * root2 + eps);
  }

  // 1 - beta^step, right in all digits: the difference of nearly equal numbers never arises.
  TI_HOST_DEVICE static float bias_correction(float log_beta, float step) { return -::expm1f(step * log_beta); }

  float decay;  // lr * weight_decay, or weight_decay where it is added to the gradient
  float keep1;  // 1 - beta1
  float beta2;
  float keep2;
  float step_size;  // lr / (1 - beta1^step)
  float root2;      // 1 / sqrt(1 - beta2^step)
  float eps;
  float clip_scale;
  bool decoupled;
};

}  // namespace titanium::kernels
