// Writes the list of one rank: knows which micro-batch of each stage comes next, and which weight gradients are due.
#pragma once

#include <deque>
#include <map>
#include <vector>

#include "titanium/schedule/table.h"

namespace titanium::schedule {

class RankList {
 public:
  void forward(int stage);
  void input(int stage);
  void backward(int stage);
  // A forward and a whole backward as a pair.
  void overlapped(int forward_stage, int backward_stage);
  // The oldest weight gradient that is due: of `stage`, or of any stage. There must be one.
  void weight(int stage);
  void weight();

  int forwards(int stage) const;
  bool weight_due(int stage) const;

  std::vector<Action> take() { return std::move(list_); }

 private:
  std::vector<Action> list_;
  std::map<int, int> forwards_, backwards_;  // by stage: how many there were
  std::deque<Action> due_;
};

}  // namespace titanium::schedule
