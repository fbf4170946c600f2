// Quantised weights of Hugging Face folders as the numbers that they stand for.
#pragma once

#include <optional>

#include "titanium/checkpoint/weights_source.h"

namespace titanium::checkpoint {

// Shows the quantised tensors of another source, which must outlive this one, as float32, and all others as they are:
//
//   NAME, float8 [rows, columns], with NAME_scale_inv (DeepSeek V3): one factor for each block of 128 x 128 elements,
//   the last ones cut. It stands for NAME.
//
//   NAME_blocks, bytes [experts, rows, groups, 16], with NAME_scales, bytes [experts, rows, groups] (MXFP4, GPT-OSS):
//   32 numbers of four bits, the lower half of each byte first, and the exponent of the power of two that they share,
//   plus 127. They stand for NAME [experts, 32 * groups, rows]: the transpose, which is what folders without
//   quantisation have.
//
// Reads and expands only what a box needs, a few megabytes at a time.
class ExpandedWeights : public WeightsSource {
 public:
  // Throws Error for scales that do not fit their tensor.
  explicit ExpandedWeights(const WeightsSource& source);

  std::string_view format() const override { return source_.format(); }
  std::vector<std::string> values() const override { return source_.values(); }
  PickleValue value(const std::string& name) const override { return source_.value(name); }
  DcpPath path_to(const std::string& name) const override { return source_.path_to(name); }
  std::map<std::string, std::string> facts() const override { return source_.facts(); }

 private:
  void copy_box(const std::string& name, const Box& box, const Tensor& destination) const override;

  const WeightsSource& source_;
};

// The first quantised tensor of the source, as it is stored, if there is one.
std::optional<std::string> find_quantised(const WeightsSource& source);

}  // namespace titanium::checkpoint
