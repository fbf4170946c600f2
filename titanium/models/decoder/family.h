// What a family of decoder-only transformers gives: its arguments, the halves of its blocks, its names. The rest, one
// decoder for all, is in decoder.h.
#pragma once

#include <memory>

#include "titanium/models/decoder/args.h"
#include "titanium/models/decoder/parts.h"
#include "titanium/models/hugging_face_adapter.h"

namespace titanium::models::decoder {

class Family {
 public:
  virtual ~Family() = default;

  virtual const Args& args() const = 0;
  // The halves of block `layer`, from 0 on; blocks of one model may differ. Their parameters are called
  // layers.<layer>.attention and so on, as torchtitan's.
  virtual std::unique_ptr<Attention> attention(int64_t layer) const = 0;
  virtual std::unique_ptr<FeedForward> feed_forward(int64_t layer) const = 0;
  // For max_seq_len positions; what its attention wants, see ops/rope.h.
  virtual Tensor rope_table(Device device) const = 0;
  virtual std::string description() const = 0;  // the arguments as JSON, for the log
  virtual const HuggingFaceAdapter* hugging_face() const { return nullptr; }
};

// A family whose arguments and names at Hugging Face have types of its own. `fields` describe the arguments.
template <typename OwnArgs, typename Weights>
class FamilyOf : public Family {
 public:
  FamilyOf(const OwnArgs& args, const ArgFields<OwnArgs>& fields)
      : args_(args), weights_(args), description_(to_json(args, fields)) {}

  const OwnArgs& args() const override { return args_; }
  std::string description() const override { return description_; }
  const HuggingFaceAdapter* hugging_face() const override { return &weights_; }

 protected:
  OwnArgs args_;

 private:
  Weights weights_;
  std::string description_;
};

}  // namespace titanium::models::decoder
