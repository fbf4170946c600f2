#include "titanium/checkpoint/expanded_weights.h"

#include <ATen/ops/empty.h>

#include <array>
#include <cmath>
#include <limits>
#include <set>

#include "titanium/base/error.h"

namespace titanium::checkpoint {
namespace {

constexpr int64_t kBlock = 128;         // rows and columns that share a factor
constexpr int64_t kRowsAtATime = 1024;  // a multiple of it
constexpr int64_t kGroup = 32;          // numbers of four bits that share an exponent
constexpr int64_t kGroupBytes = kGroup / 2;
constexpr int kExponentBias = 127;
constexpr int kNotANumber = 255;
constexpr std::string_view kFactors = "_scale_inv", kNibbles = "_blocks", kExponents = "_scales";
constexpr std::string_view kRemedy = "The folder is damaged or quantised in another way: fetch it again.";

// The numbers of four bits (E2M1).
constexpr std::array<float, 16> kNumbers = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,  4.0F,  6.0F,
                                            -0.0F, -0.5F, -1.0F, -1.5F, -2.0F, -3.0F, -4.0F, -6.0F};

int64_t blocks_of(int64_t elements) { return (elements + kBlock - 1) / kBlock; }

std::string joined(std::string_view name, std::string_view suffix) { return std::string(name).append(suffix); }

bool is_block_scaled(const WeightsSource& source, const std::string& name, const SourceTensor& tensor) {
  return tensor.dtype == at::kFloat8_e4m3fn && source.contains(joined(name, kFactors));
}

// The name that NAME_blocks stands for, if this is one.
std::optional<std::string> name_of_nibbles(const WeightsSource& source, const std::string& name) {
  if (!name.ends_with(kNibbles)) return std::nullopt;
  const std::string base = name.substr(0, name.size() - kNibbles.size());
  return source.contains(joined(base, kExponents)) ? std::optional(base) : std::nullopt;
}

void check_factors(const WeightsSource& source, const std::string& name, const Shape& shape) {
  const SourceTensor& factors = source.tensor(joined(name, kFactors));
  TI_CHECK(shape.size() == 2 && factors.shape == (Shape{blocks_of(shape[0]), blocks_of(shape[1])}) &&
               c10::isFloatingType(factors.dtype),
           "{}: {} is [{}] and {}{} is [{}], but one factor for each block of {} x {} elements is expected. {}",
           source.path(), name, fmt::join(shape, ", "), name, kFactors, fmt::join(factors.shape, ", "), kBlock, kBlock,
           kRemedy);
}

// Returns the shape of what they stand for.
Shape check_nibbles(const WeightsSource& source, const std::string& base) {
  const SourceTensor& nibbles = source.tensor(joined(base, kNibbles));
  const SourceTensor& exponents = source.tensor(joined(base, kExponents));
  Shape expected = exponents.shape;
  expected.push_back(kGroupBytes);
  TI_CHECK(exponents.shape.size() == 3 && nibbles.shape == expected && nibbles.dtype == at::kByte &&
               exponents.dtype == at::kByte,
           "{}: {}{} is [{}] and {}{} is [{}], but {} bytes for each exponent are expected. {}", source.path(), base,
           kNibbles, fmt::join(nibbles.shape, ", "), base, kExponents, fmt::join(exponents.shape, ", "), kGroupBytes,
           kRemedy);
  return {exponents.shape[0], exponents.shape[2] * kGroup, exponents.shape[1]};
}

void read_block_scaled(const WeightsSource& source, const std::string& name, const Box& box,
                       const Tensor& destination) {
  const int64_t columns = box.shape[1], first_column = box.offset[1];
  const int64_t first_block = first_column / kBlock;
  const int64_t column_blocks = blocks_of(first_column + columns) - first_block;
  for (int64_t row = box.offset[0], end = row + box.shape[0]; row < end;) {
    const int64_t rows = std::min((row / kRowsAtATime + 1) * kRowsAtATime, end) - row;
    const int64_t row_block = row / kBlock;
    const Tensor data = at::empty({rows, columns}, at::kFloat8_e4m3fn);
    source.read(name, {{row, first_column}, {rows, columns}}, data);
    Tensor factors = at::empty({blocks_of(row + rows) - row_block, column_blocks}, at::kFloat);
    source.read(joined(name, kFactors), {{row_block, first_block}, {factors.size(0), factors.size(1)}}, factors);
    factors = factors.repeat_interleave(kBlock, 0).narrow(0, row % kBlock, rows);
    factors = factors.repeat_interleave(kBlock, 1).narrow(1, first_column % kBlock, columns);
    destination.narrow(0, row - box.offset[0], rows).copy_(data.to(at::kFloat).mul_(factors));
    row += rows;
  }
}

// [rows, groups, 16] and [rows, groups] to [rows, 32 * groups].
Tensor expand_nibbles(const Tensor& nibbles, const Tensor& exponents) {
  const int64_t groups = exponents.numel();
  Tensor numbers = at::empty({exponents.size(0), exponents.size(1) * kGroup}, at::kFloat);
  const auto* byte = nibbles.const_data_ptr<uint8_t>();
  const auto* exponent = exponents.const_data_ptr<uint8_t>();
  auto* number = numbers.mutable_data_ptr<float>();
  for (int64_t group = 0; group < groups; ++group, byte += kGroupBytes, number += kGroup) {
    const float scale = exponent[group] == kNotANumber ? std::numeric_limits<float>::quiet_NaN()
                                                       : std::ldexp(1.0F, exponent[group] - kExponentBias);
    for (int64_t i = 0; i < kGroupBytes; ++i) {
      number[2 * i] = kNumbers[byte[i] & 0x0F] * scale;
      number[2 * i + 1] = kNumbers[byte[i] >> 4] * scale;
    }
  }
  return numbers;
}

// `box` is of what they stand for, [experts, numbers, rows].
void read_nibbles(const WeightsSource& source, const std::string& base, const Box& box, const Tensor& destination) {
  const int64_t number = box.offset[1], numbers = box.shape[1], row = box.offset[2], rows = box.shape[2];
  const int64_t group = number / kGroup, groups = (number + numbers + kGroup - 1) / kGroup - group;
  const Tensor nibbles = at::empty({1, rows, groups, kGroupBytes}, at::kByte);
  const Tensor exponents = at::empty({1, rows, groups}, at::kByte);
  for (int64_t i = 0; i < box.shape[0]; ++i) {
    const int64_t expert = box.offset[0] + i;
    source.read(joined(base, kNibbles), {{expert, row, group, 0}, {1, rows, groups, kGroupBytes}}, nibbles);
    source.read(joined(base, kExponents), {{expert, row, group}, {1, rows, groups}}, exponents);
    const Tensor expanded = expand_nibbles(nibbles[0], exponents[0]);
    destination.select(0, i).copy_(expanded.narrow(1, number - group * kGroup, numbers).t());
  }
}

}  // namespace

std::optional<std::string> find_quantised(const WeightsSource& source) {
  for (const auto& [name, tensor] : source.tensors()) {
    if (is_block_scaled(source, name, tensor) || name_of_nibbles(source, name)) return name;
  }
  return std::nullopt;
}

ExpandedWeights::ExpandedWeights(const WeightsSource& source) : WeightsSource(source.path()), source_(source) {
  std::set<std::string> scales;
  for (const auto& [name, tensor] : source.tensors()) {
    if (is_block_scaled(source, name, tensor)) {
      check_factors(source, name, tensor.shape);
      tensors_[name] = {at::kFloat, tensor.shape, tensor.pieces};
      scales.insert(joined(name, kFactors));
    } else if (const auto base = name_of_nibbles(source, name)) {
      const Shape shape = check_nibbles(source, *base);
      tensors_[*base] = {at::kFloat, shape, {{whole_box(shape), tensor.pieces.front().file}}};
      scales.insert(joined(*base, kExponents));
    } else {
      tensors_.try_emplace(name, tensor);
    }
  }
  for (const std::string& name : scales) tensors_.erase(name);
}

void ExpandedWeights::copy_box(const std::string& name, const Box& box, const Tensor& destination) const {
  if (source_.contains(joined(name, kNibbles))) return read_nibbles(source_, name, box, destination);
  if (source_.contains(joined(name, kFactors))) return read_block_scaled(source_, name, box, destination);
  source_.read(name, box, destination);
}

}  // namespace titanium::checkpoint
