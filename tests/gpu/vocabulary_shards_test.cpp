// The head's loss with its vocabulary cut in two, on one GPU: two threads exchange what two ranks would.
#include <ATen/ops/cat.h>
#include <ATen/ops/randint.h>

#include <array>
#include <barrier>
#include <thread>

#include "tests/gpu/gpu_test.h"
#include "titanium/ops/head_loss.h"
#include "titanium/ops/kernel_choice.h"

namespace titanium::ops {
namespace {

using test::random_tensor;
using test::tolerance;

// Both threads queue on the same stream, so meeting on the host orders their work.
struct Meeting {
  std::barrier<> barrier{2};
  std::array<Tensor, 2> given;
  Tensors exchange(int rank, const Tensor& mine) {
    given[rank] = mine.clone();
    barrier.arrive_and_wait();
    const Tensors both = {given[0], given[1]};
    barrier.arrive_and_wait();
    return both;
  }
};

class HalfExchange : public RowExchange {
 public:
  HalfExchange(Meeting& meeting, int rank) : meeting_(meeting), rank_(rank) {}
  int64_t ranks() const override { return 2; }
  Pending gather(const Tensor& rows) override { return ready(at::cat(meeting_.exchange(rank_, rows))); }
  Pending reduce_scatter(const Tensor& partial) override {
    const Tensors both = meeting_.exchange(rank_, partial);
    return ready((both[0] + both[1]).chunk(2)[rank_]);
  }
  Tensor gather_columns(const Tensor& columns) override { return at::cat(meeting_.exchange(rank_, columns), 1); }
  void sum(const Tensor& tensor) override {
    const Tensors both = meeting_.exchange(rank_, tensor);
    tensor.copy_(both[0] + both[1]);
  }
  void max(const Tensor& tensor) override {
    const Tensors both = meeting_.exchange(rank_, tensor);
    tensor.copy_(both[0].maximum(both[1]));
  }

 private:
  static Pending ready(const Tensor& result) {
    return [result] { return result; };
  }
  Meeting& meeting_;
  int rank_;
};

class GpuVocabularyShards : public test::GpuTest {
 protected:
  struct Result {
    double loss;
    Tensor grad_x, grad_weight;
  };

  static Result whole(const Tensor& x, const Tensor& weight, const Tensor& labels) {
    Parameter head("output.weight", weight.sizes().vec());
    head.materialize(at::kFloat, at::kCPU);
    head.value.detach().copy_(weight);
    const Tensor leaf = x.to(at::kFloat).requires_grad_(true);
    const Tensor loss = head_loss(leaf, {head}, labels, kScale);
    loss.backward();
    return {loss.item<double>(), leaf.grad(), head.grad};
  }

  Result half(const Tensor& x, const Tensor& weight, const Tensor& labels, int64_t cut, bool loss_parallel,
              Meeting& meeting, int rank) const {
    HalfExchange exchange(meeting, rank);
    Parameter head("output.weight", weight.sizes().vec());
    head.part.offset[0] = rank == 0 ? 0 : cut;
    head.part.shape[0] = rank == 0 ? cut : weight.size(0) - cut;
    head.shard = head.part;
    head.materialize(at::kFloat, gpu_);
    head.value.detach().copy_(box_of(weight, head.part));
    const Tensor leaf = x.chunk(2)[rank].to(gpu_).requires_grad_(true);
    const Tensor loss = head_loss(leaf, {head, exchange, loss_parallel}, labels.to(gpu_), kScale);
    loss.backward();
    return {loss.item<double>(), leaf.grad(), head.grad};
  }

  void check(int64_t vocabulary, int64_t cut, Dtype dtype, bool loss_parallel) const {
    const int64_t tokens = 64, dim = 96;
    const Tensor x = random_tensor({tokens, dim}).to(at::kBFloat16).to(dtype);
    const Tensor weight = (random_tensor({vocabulary, dim}) * 0.2).to(at::kBFloat16).to(at::kFloat);
    const Tensor labels = at::randint(vocabulary, {tokens}, at::kLong);
    labels.narrow(0, 3, 9).fill_(kIgnoreIndex);
    Meeting meeting;
    std::array<Result, 2> halves;
    std::thread other([&] { halves[1] = half(x, weight, labels, cut, loss_parallel, meeting, 1); });
    halves[0] = half(x, weight, labels, cut, loss_parallel, meeting, 0);
    other.join();
    const Result expected = whole(x, weight, labels);
    const double limit = dtype == at::kFloat ? 20 * tolerance(at::kFloat) : tolerance(at::kBFloat16);
    for (const Result& result : halves) EXPECT_NEAR(result.loss, expected.loss, 0.1 * limit * expected.loss);
    EXPECT_CLOSE(at::cat({halves[0].grad_x, halves[1].grad_x}), expected.grad_x, limit);
    EXPECT_CLOSE(at::cat({halves[0].grad_weight, halves[1].grad_weight}), expected.grad_weight, limit);
  }

  static constexpr double kScale = 1.0 / 55;
};

TEST_F(GpuVocabularyShards, GiveTheLossAndGradientsOfTheWhole) {
  for (const bool reference : {false, true}) {
    set_reference_ops(reference);
    for (const Dtype dtype : {at::kBFloat16, at::kFloat}) {
      for (const bool loss_parallel : {true, false}) {
        SCOPED_TRACE(testing::Message() << dtype << ", loss parallel " << loss_parallel << ", ATen " << reference);
        check(1024, 512, dtype, loss_parallel);
        check(1001, 500, dtype, loss_parallel);
      }
    }
  }
  set_reference_ops(false);
}

}  // namespace
}  // namespace titanium::ops
