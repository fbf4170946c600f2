// A group of ranks that exchange tensors: the narrow interface over NCCL, Gloo, a fake and a threaded back end.
#pragma once

#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "titanium/tensor/tensor.h"

namespace titanium::comm {

struct FlightGroup;

enum class Reduce { kSum, kMax, kAvg };

// One collective under way. It keeps its tensors alive; they may not be touched before `wait`. Its group outlives it.
class PendingWork {
 public:
  virtual ~PendingWork() = default;
  // NCCL: the current stream waits, the host does not. Other back ends: the host waits. Throws CommError (error.h).
  // To be called once, on the thread and with the current stream that will use the result.
  virtual void wait() = 0;
};
using Work = std::unique_ptr<PendingWork>;

// All members of a group call the same collectives in the same order with the same sizes and dtypes. Tensors are
// contiguous, on the CPU or on this rank's GPU. What the current stream has queued before the call is seen by the
// collective. Autograd sees nothing of it: results do not count as changes in place. Dtypes: float64, float32,
// bfloat16, float16, int64, int32, uint8.
//
// The public functions remember every collective (flight_recorder.h) and turn failures of the back end into CommError,
// which names rank, collective, axis and step; back ends implement the protected ones.
class Group {
 public:
  // `members[rank]` is this process; the members are ranks of the world.
  Group(std::string axis, int rank, std::vector<int> members);
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  const std::string& axis() const { return axis_; }
  int rank() const { return rank_; }  // of this process, within the group
  int size() const { return static_cast<int>(members_.size()); }
  const std::vector<int>& members() const { return members_; }  // ranks of the world

  // In place.
  [[nodiscard]] Work all_reduce(const Tensor& tensor, Reduce op);
  // `out` holds size() times the elements of `in`, in the order of ranks. `in` may be this rank's part of `out`.
  [[nodiscard]] Work all_gather(const Tensor& out, const Tensor& in);
  // `in` holds size() times the elements of `out`, in the order of ranks. With `reduces_in_place`, `out` may be this
  // rank's part of `in`.
  [[nodiscard]] Work reduce_scatter(const Tensor& out, const Tensor& in, Reduce op);
  virtual bool reduces_in_place() const { return false; }
  [[nodiscard]] Work broadcast(const Tensor& tensor, int root);
  // Cuts dim 0: `in_rows[i]` rows go to rank i, `out_rows[i]` rows come from rank i.
  [[nodiscard]] Work all_to_all(const Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                                std::span<const int64_t> in_rows);
  [[nodiscard]] Work send(const Tensor& tensor, int to);
  [[nodiscard]] Work receive(const Tensor& tensor, int from);
  // The host waits until all members are here.
  void barrier();

 protected:
  // How long the back end waits for a collective that begins now; 0 where it waits for nobody.
  virtual std::chrono::milliseconds timeout() const { return std::chrono::milliseconds(0); }
  // c10d's NCCL back end has a recorder of its own, which knows what the device has completed: dumps take what that
  // says.
  void leave_records_to_nccl();

  virtual Work start_all_reduce(const Tensor& tensor, Reduce op) = 0;
  virtual Work start_all_gather(const Tensor& out, const Tensor& in) = 0;
  virtual Work start_reduce_scatter(const Tensor& out, const Tensor& in, Reduce op) = 0;
  virtual Work start_broadcast(const Tensor& tensor, int root) = 0;
  virtual Work start_all_to_all(const Tensor& out, const Tensor& in, std::span<const int64_t> out_rows,
                                std::span<const int64_t> in_rows) = 0;
  virtual Work start_send(const Tensor& tensor, int to) = 0;
  virtual Work start_receive(const Tensor& tensor, int from) = 0;
  virtual void run_barrier() = 0;

 private:
  template <typename Start>
  Work recorded(const char* name, const Tensor& in, const Tensor& out, const Start& start, int peer = -1);

  std::string axis_;
  int rank_;
  std::vector<int> members_;
  std::shared_ptr<FlightGroup> flight_;
};

using GroupPtr = std::shared_ptr<Group>;

}  // namespace titanium::comm
