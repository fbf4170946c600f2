#include "titanium/parallel/owner_exchange.h"

#include <ATen/ops/empty.h>

#include <deque>
#include <numeric>

#include "titanium/base/error.h"

namespace titanium::parallel {
namespace {

using optim::MatrixWork;

// Note [Buffers of an exchange]
// Exchanges that are under way at a time, of inputs and of results each, and the buffers of each: what goes out and
// what comes in, about one matrix each.
constexpr int64_t kUnderWay = 2;
constexpr int64_t kBuffers = 2 * kUnderWay * 2;

// Block `wave` of `waves` of the rows of a box.
Box rows_of_wave(Box box, int64_t wave, int64_t waves) {
  const size_t dim = box.shape.size() - 2;
  const int64_t rows = box.shape[dim], begin = rows * wave / waves;
  box.offset[dim] += begin;
  box.shape[dim] = rows * (wave + 1) / waves - begin;
  return box;
}

// One exchange of pieces between all ranks of the stage. A pair of ranks has at most one piece in each direction.
class Exchange {
 public:
  Exchange(comm::Group& group, Device device, Dtype dtype) : group_(group), device_(device), dtype_(dtype) {}

  void send(int to, const Tensor& piece) { outgoing_[to] = piece; }
  // `take` is called by `finish` with what came, of the box's shape.
  void receive(int from, const Box& box, std::function<void(const Tensor&)> take) {
    incoming_[from] = {box.shape, std::move(take)};
  }

  void start() {
    std::vector<int64_t> out_rows(static_cast<size_t>(group_.size())), in_rows(out_rows);
    for (const auto& [to, piece] : outgoing_) in_rows[static_cast<size_t>(to)] = piece.numel();
    for (const auto& [from, piece] : incoming_) out_rows[static_cast<size_t>(from)] = volume(piece.shape);
    const auto options = at::TensorOptions(dtype_).device(device_);
    out_ = at::empty({std::accumulate(out_rows.begin(), out_rows.end(), int64_t{0})}, options);
    in_ = at::empty({std::accumulate(in_rows.begin(), in_rows.end(), int64_t{0})}, options);
    int64_t first = 0;
    for (const auto& [to, piece] : outgoing_) {
      in_.narrow(0, first, piece.numel()).view(piece.sizes()).copy_(piece);
      first += piece.numel();
    }
    outgoing_.clear();
    work_ = group_.all_to_all(out_, in_, out_rows, in_rows);
  }

  void finish() {
    work_->wait();
    in_ = Tensor();
    int64_t first = 0;
    for (const auto& [from, piece] : incoming_) {
      const int64_t elements = volume(piece.shape);
      piece.take(out_.narrow(0, first, elements).view(piece.shape));
      first += elements;
    }
  }

 private:
  struct Incoming {
    Shape shape;
    std::function<void(const Tensor&)> take;
  };
  comm::Group& group_;
  Device device_;
  Dtype dtype_;
  std::map<int, Tensor> outgoing_;  // by rank
  std::map<int, Incoming> incoming_;
  Tensor out_, in_;
  comm::Work work_;
};

}  // namespace

// One round on this rank, from the pieces of the matrix that it owns to the pieces of the result.
class OwnerExchange::Round {
 public:
  Round(const MatrixRound& round, const MatrixWork& work, comm::Group& group, Device device)
      : round_(round), work_(work), group_(group), device_(device) {}

  void start_gather() {
    if (round_.gathers) gather_.emplace(group_, device_, work_.dtype);
    for (const MatrixRound::Part& part : round_.parts) is_mine(part) ? collect(part) : hand_over(part);
    if (gather_) gather_->start();
  }

  void compute() {
    if (gather_) gather_->finish();
    gather_.reset();
    if (!matrix_.defined()) return;
    const Box& box = mine_->matrix.box;
    matrix_ = work_.compute(matrix_.view({optim::matrix_rows(box), optim::matrix_columns(box)})).reshape(box.shape);
  }

  // Block `wave` of the results; nothing if no rank has anything to send.
  std::unique_ptr<Exchange> start_scatter(int64_t wave, int64_t waves) {
    std::unique_ptr<Exchange> scatter;
    if (round_.scatters) scatter = std::make_unique<Exchange>(group_, device_, work_.dtype);
    for (const MatrixRound::Part& part : round_.parts) {
      for (const MatrixPiece& piece : part.results)
        give(part, piece.peer, rows_of_wave(piece.box, wave, waves), scatter.get());
    }
    if (scatter) scatter->start();
    return scatter;
  }

 private:
  bool is_mine(const MatrixRound::Part& part) const { return part.matrix.owner == group_.rank(); }

  Tensor read(const Parameter& parameter, const Box& box) const { return work_.read(parameter, box).to(device_); }

  // The pieces of the matrix that this rank owns.
  void collect(const MatrixRound::Part& part) {
    mine_ = &part;
    const Box& whole = part.matrix.box;
    if (!round_.gathers || (part.inputs.size() == 1 && part.inputs[0].box == whole)) {
      matrix_ = read(*part.matrix.parameter, whole).contiguous();
      return;
    }
    matrix_ = at::empty(whole.shape, at::TensorOptions(work_.dtype).device(device_));
    for (const MatrixPiece& piece : part.inputs) {
      Box inside = piece.box;
      for (size_t dim = 0; dim < inside.offset.size(); ++dim) inside.offset[dim] -= whole.offset[dim];
      const Tensor place = box_of(matrix_, inside);
      if (piece.peer == group_.rank()) {
        place.copy_(read(*part.matrix.parameter, piece.box));
      } else {
        gather_->receive(piece.peer, piece.box, [place](const Tensor& came) { place.copy_(came); });
      }
    }
  }

  void hand_over(const MatrixRound::Part& part) {
    for (const MatrixPiece& piece : part.inputs) gather_->send(piece.peer, read(*part.matrix.parameter, piece.box));
  }

  void give(const MatrixRound::Part& part, int peer, const Box& box, Exchange* scatter) const {
    Parameter& parameter = *part.matrix.parameter;
    const auto write = [&work = work_, &parameter, box](const Tensor& piece) { work.write(parameter, box, piece); };
    if (!is_mine(part)) return scatter->receive(peer, box, write);
    Box inside = box;
    for (size_t dim = 0; dim < inside.offset.size(); ++dim) inside.offset[dim] -= part.matrix.box.offset[dim];
    const Tensor piece = box_of(matrix_, inside);
    peer == group_.rank() ? write(piece) : scatter->send(peer, piece);
  }

  const MatrixRound& round_;
  const MatrixWork& work_;
  comm::Group& group_;
  Device device_;
  std::optional<Exchange> gather_;
  const MatrixRound::Part* mine_ = nullptr;
  Tensor matrix_;  // undefined where this rank owns none
};

OwnerExchange::OwnerExchange(const std::vector<Parameter*>& parameters, const ParallelDims& dims, int rank)
    : dims_(dims), rank_(rank) {
  largest_ = plan_for(parameters).largest;
}

void OwnerExchange::connect(comm::World& world, Device device) {
  group_ = world.group("optimizer", stage_members(dims_, rank_));
  device_ = device;
}

const MatrixPlan& OwnerExchange::plan_for(const std::vector<Parameter*>& parameters) {
  const auto known = plans_.find(parameters);
  if (known != plans_.end()) return known->second;
  return plans_.emplace(parameters, plan_matrices(parameters, dims_, rank_)).first->second;
}

void OwnerExchange::run(const std::vector<Parameter*>& parameters, const MatrixWork& work) {
  TI_ASSERT(group_ != nullptr, "the exchange is not connected");
  const MatrixPlan& plan = plan_for(parameters);
  std::deque<Round> gathered;  // with inputs under way, the next to compute first
  std::deque<std::unique_ptr<Exchange>> results;
  const auto gather = [&](size_t number) {
    if (number < plan.rounds.size()) gathered.emplace_back(plan.rounds[number], work, *group_, *device_).start_gather();
  };
  gather(0);
  for (size_t number = 0; number < plan.rounds.size(); ++number) {
    gather(number + 1);
    Round& round = gathered.front();
    round.compute();
    for (int64_t wave = 0; wave < plan.waves; ++wave) {
      auto scatter = round.start_scatter(wave, plan.waves);
      if (scatter != nullptr) results.push_back(std::move(scatter));
      if (static_cast<int64_t>(results.size()) < kUnderWay) continue;
      results.front()->finish();
      results.pop_front();
    }
    gathered.pop_front();
  }
  for (const auto& scatter : results) scatter->finish();
}

int64_t OwnerExchange::buffer_elements() const {
  return stage_members(dims_, rank_).size() > 1 ? kBuffers * largest_ : 0;
}

}  // namespace titanium::parallel
