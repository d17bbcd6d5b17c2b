#include "capi/python_tensors.h"

#include <algorithm>
#include <vector>

namespace headroom::capi::python {

Given* given = nullptr;

namespace {

bool plain(Object* o) {
  const Ref type(interpreter().PyObject_Type(o));
  return type.get() == given->tensor.get() || type.get() == given->parameter.get();
}

}  // namespace

bool negative(Object* tensor) {
  const Ref answer = call_method(given->is_neg.get(), {tensor});
  if (!answer) interpreter().PyErr_Clear();
  return answer.get() != interpreter()._Py_FalseStruct;
}

bool read(Object* o, Read& out) {
  if (!plain(o)) return false;
  dlpack::Tensor t;
  if (given->exchange->lend(o, &t) != 0) {
    interpreter().PyErr_Clear();
    return false;
  }
  if (t.rank > 4 || (!t.data && std::ranges::count(t.shape, t.shape + t.rank, 0) == 0)) return false;  // torch's zeros without memory
  std::copy_n(t.shape, t.rank, out.view.sizes.begin());
  std::copy_n(t.stride, t.rank, out.view.sizes.begin() + 4);
  out.view.rank = t.rank, out.view.type = t.type, out.view.device = t.device, out.data = t.begin();
  return true;
}

bool aligned(std::span<const Read> tensors) {
  std::uintptr_t all = 0;
  for (const Read& t : tensors) all |= reinterpret_cast<std::uintptr_t>(t.data);
  return all % 16 == 0;
}

Output output_of(Object* said) {
  const auto& py = interpreter();
  return {py.PyLong_AsLongLong(py.PyTuple_GetItem(said, 0)), Ref::also(py.PyTuple_GetItem(said, 1)),
          Ref::also(py.PyTuple_GetItem(said, 2))};
}

Ref make(const Output& o, std::span<Object* const> at_hand) {
  if (o.like >= 0) return call(given->empty_like.get(), {at_hand[std::size_t(o.like)]});
  return call(given->new_empty_strided.get(), {at_hand[0], o.shape.get(), o.stride.get()});
}

bool begins(const Ref& tensor, void*& at) {
  dlpack::Tensor t;
  if (!tensor || given->exchange->lend(tensor.get(), &t) != 0) return false;
  at = t.begin();
  return true;
}

Pass pass_of(Object* said) {
  const auto& py = interpreter();
  const auto item = [&](Size i) { return py.PyTuple_GetItem(said, i); };
  return {static_cast<headroom_attention_call*>(py.PyLong_AsVoidPtr(item(0))), std::size_t(py.PyLong_AsLongLong(item(1))),
          Ref::also(item(2)), Ref::also(item(3))};
}

bool Workspace::take(const Pass& pass, const dlpack::Device& device) {
  if (pass.workspace == 0) return true;
  constexpr std::size_t small = 1 << 20;
  std::int64_t size = std::int64_t(pass.workspace), step = 1;
  if (device.type == dlpack::cpu) size += HEADROOM_ALIGNMENT;
  if (device.type == dlpack::cpu && pass.workspace <= small) {
    thread_local std::vector<char> kept;
    if (kept.size() < std::size_t(size)) kept.resize(std::size_t(size));
    data_ = kept.data();
    return true;
  }
  dlpack::Tensor wanted{nullptr, device, 1, dlpack::bytes, &size, &step, 0};
  if (given->exchange->allocate(&wanted, &lent_, nullptr, [](void*, const char*, const char*) {}) == 0) {
    data_ = lent_->tensor.begin();
    return true;
  }
  lent_ = nullptr;
  interpreter().PyErr_Clear();
  room_ = call(given->empty_like.get(), {pass.room.get()});  // says in torch's words why not
  return begins(room_, data_);
}

}  // namespace headroom::capi::python
