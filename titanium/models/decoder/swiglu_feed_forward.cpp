#include "titanium/models/decoder/swiglu_feed_forward.h"

#include "titanium/ops/feed_forward.h"
#include "titanium/ops/init.h"

namespace titanium::models::decoder {
namespace {

// Whether w2's input waits for the backward in float8, if everything is kept.
bool keeps_float8_product(const Parameter& w2) {
  return w2.float8 && !w2.float8->emulate && w2.float8->recipe != Float8Recipe::kRowwiseWithGwHp;
}

}  // namespace

SwigluFeedForward::SwigluFeedForward(const std::string& fqn, int64_t dim, int64_t hidden_dim)
    : hidden_dim_(hidden_dim),
      w1_(fqn + ".w1", dim, hidden_dim),
      w2_(fqn + ".w2", hidden_dim, dim),
      w3_(fqn + ".w3", dim, hidden_dim) {
  for (const nn::Linear* linear : {&w1_, &w2_, &w3_}) add(*linear);
}

Tensor SwigluFeedForward::forward(const Tensor& h_tD, nn::RmsNorm& norm, const BlockContext& context, size_t level) {
  using enum ops::FeedForwardSaves;
  constexpr std::array kSaves = {kEverything, kGateAndUp, kNothing};  // in the order of levels()
  return ops::feed_forward(h_tD, {norm.weight, norm.eps, w1_.weight, w2_.weight, w3_.weight, context.rows},
                           kSaves.at(level));
}

nn::SaveLevels SwigluFeedForward::levels(Dtype compute) const {
  const int64_t width = hidden_dim_ * static_cast<int64_t>(c10::elementSize(compute));
  const int64_t gate_and_up = 2 * width;
  const int64_t everything = gate_and_up + (keeps_float8_product(w2_.weight) ? hidden_dim_ : 0);
  // The product's gradient, in whose place the product comes, beside what is computed once more.
  return {{"everything", everything, width},
          {"gate_and_up", gate_and_up, width + everything - gate_and_up},
          {"attention_half", 0, width + everything}};
}

void SwigluFeedForward::init_weights(const InitialWeights& init) {
  ops::init_normal(w1_.weight, init.seed, 0.02);
  for (nn::Linear* linear : {&w2_, &w3_}) ops::init_normal(linear->weight, init.seed, init.residual_std);
}

parallel::TensorParallelPlan SwigluFeedForward::tensor_parallel_plan() const {
  using enum parallel::TensorParallelStyle;
  return {{"layers.*.feed_forward.{w1,w3}", kByColumn}, {"layers.*.feed_forward.w2", kByRow}};
}

}  // namespace titanium::models::decoder
