#include "titanium/comm/text_collectives.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

namespace titanium::comm {
namespace {

Tensor bytes_of(const std::string& text) {
  Tensor bytes = at::empty({static_cast<int64_t>(text.size())}, at::kByte);
  std::ranges::copy(text, static_cast<char*>(bytes.mutable_data_ptr()));
  return bytes;
}

std::string text_of(const Tensor& bytes) {
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(bytes.numel())};
}

}  // namespace

std::vector<std::string> gather_texts(Group& group, const std::string& text) {
  if (group.size() == 1) return {text};
  const Tensor sizes = at::zeros({group.size()}, at::kLong);
  group.all_gather(sizes, at::tensor({static_cast<int64_t>(text.size())}, at::kLong))->wait();
  if (group.rank() != 0) {
    if (!text.empty()) group.send(bytes_of(text), 0)->wait();
    return {};
  }
  std::vector<std::string> texts = {text};
  for (int rank = 1; rank < group.size(); ++rank) {
    const Tensor bytes = at::empty({sizes[rank].item<int64_t>()}, at::kByte);
    if (bytes.numel() > 0) group.receive(bytes, rank)->wait();
    texts.push_back(text_of(bytes));
  }
  return texts;
}

std::string broadcast_text(Group& group, const std::string& text) {
  if (group.size() == 1) return text;
  const Tensor size = at::tensor({static_cast<int64_t>(text.size())}, at::kLong);
  group.broadcast(size, 0)->wait();
  const Tensor bytes = group.rank() == 0 ? bytes_of(text) : at::empty({size.item<int64_t>()}, at::kByte);
  if (bytes.numel() > 0) group.broadcast(bytes, 0)->wait();
  return text_of(bytes);
}

std::vector<std::string> exchange_texts(Group& group, const std::vector<std::string>& texts) {
  if (group.size() == 1) return texts;
  const auto ranks = static_cast<size_t>(group.size());
  std::vector<int64_t> sent, one_each(ranks, 1);
  std::string all;
  for (const std::string& text : texts) {
    sent.push_back(static_cast<int64_t>(text.size()));
    all += text;
  }
  const Tensor sizes = at::zeros({group.size()}, at::kLong);
  group.all_to_all(sizes, at::tensor(sent, at::kLong), one_each, one_each)->wait();
  const std::vector<int64_t> received(sizes.const_data_ptr<int64_t>(), sizes.const_data_ptr<int64_t>() + ranks);
  const Tensor bytes = at::empty({std::accumulate(received.begin(), received.end(), int64_t{0})}, at::kByte);
  group.all_to_all(bytes, bytes_of(all), received, sent)->wait();
  std::vector<std::string> result;
  int64_t at = 0;
  for (const int64_t size : received) {
    result.push_back(text_of(bytes.narrow(0, at, size)));
    at += size;
  }
  return result;
}

}  // namespace titanium::comm
