// The optimizer of a step as PyTorch: the state of each parameter, what an update allocates for a moment, and what it launches.
#pragma once
#include <vector>

#include "pytorch/eager.h"
#include "pytorch/language_model.h"
#include "pytorch/launches.h"

namespace headroom::pytorch {

class Optimizer {
 public:
  Optimizer(Eager& torch, const LanguageModel& m, DType type) : torch_(torch), adam_(m.adam), in_backward_(m.in_backward), type_(type) {}

  // A parameter, or this rank's part of it. hidden: a matrix between the embedding and the head.
  void sees(const Shape& parameter, bool hidden) { (hidden && adam_ == Adam::muon ? hidden_ : updated_).push_back(parameter); }
  void update();  // the first one makes the state
  // register_post_accumulate_grad_hook: a step for each parameter, whose gradient then goes.
  void update_in_backward(const std::vector<Parameter>& trained);

  DType type() const { return type_; }  // the type of what is updated
  std::uint64_t host_bytes() const { return host_bytes_; }

 private:
  void make_state(const Shape&);  // one parameter's
  void make_tables();
  void orthogonalise(const Shape&);  // Muon's update of one matrix
  Value temporary_of(const Shape&);  // what the update of one parameter by itself allocates and frees again
  void launch(Launches&) const;

  Eager& torch_;
  Adam adam_;
  bool in_backward_;
  DType type_;
  std::vector<Shape> hidden_, updated_;  // those that Muon updates; all others
  std::vector<Value> state_;
  Value last_;                    // what the last matrix's variable holds
  std::uint64_t host_bytes_ = 0;  // state in host memory
};

}  // namespace headroom::pytorch
