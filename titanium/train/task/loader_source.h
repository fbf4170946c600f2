// What all sources of batches that read through a loader of the data layer have in common.
#pragma once

#include "titanium/data/loader_state.h"
#include "titanium/train/task/task.h"

namespace titanium::train {

template <typename Loader>
class LoaderSource : public BatchSource {
 public:
  double last_wait_seconds() const override { return loader_->last_wait_seconds(); }
  void rewind() override { loader_->rewind(); }

  std::string position() const override { return data::to_json(loader_->state()); }
  std::string merge_positions(const std::vector<std::string>& positions) const override {
    std::vector<data::LoaderState> states;
    for (const std::string& position : positions) states.push_back(data::loader_state_from_json(position));
    return data::to_json(data::merge(states));
  }
  void load(const std::string& merged) override { loader_->load(data::loader_state_from_json(merged)); }

 protected:
  explicit LoaderSource(std::unique_ptr<Loader> loader) : loader_(std::move(loader)) {}
  Loader& loader() { return *loader_; }
  const Loader& loader() const { return *loader_; }

 private:
  std::unique_ptr<Loader> loader_;
};

}  // namespace titanium::train
