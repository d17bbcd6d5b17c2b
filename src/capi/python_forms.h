// Forms of attention's calls: what a call needs each time. Python checks a new call and keeps its form; a call of a kept form is made without it.
#pragma once
#include <array>
#include <memory>
#include <vector>

#include "capi/python_tensors.h"

namespace headroom::capi::python {

constexpr std::size_t most_alike = 16;  // forms with one hash, and backward forms of one form

struct BackwardForm {
  std::array<View, 6> of;  // d_o, q, k, v, o, lse
  Pass pass;
  std::array<Output, 3> gradients;  // dq, dk, dv
};

struct Form {
  std::array<View, 3> of;  // q, k, v
  Ref asked, answers;      // the other arguments, as the caller said them; and what Given::ambient answered
  Pass pass;
  Output o;
  Ref like_lse;
  Ref draw;  // with dropout: makes the seed and offset of a call; else None
  std::vector<std::unique_ptr<BackwardForm>> backward;

  bool drops() const { return !is_none(draw.get()); }

  const dlpack::Device& device() const { return of[0].device; }
  bool on_gpu() const { return device().type == dlpack::cuda; }
};

Form* form_of(Object* capsule);
Object* known(const std::array<Read, 3>& qkv, Object* asked);  // the capsule of a form for such tensors and arguments, or nullptr
bool keep_form(const std::array<Read, 3>& qkv, std::unique_ptr<Form> form);  // false after an error, which Python has
Ref answers();                                                               // what Given::ambient answers now
bool as_when_kept(const Form& f);                                            // whether it answers as then
bool heard_by_as_many(const Form& f);  // whether as many modes listen to operators as then, the first thing that `ambient` asks

}  // namespace headroom::capi::python
