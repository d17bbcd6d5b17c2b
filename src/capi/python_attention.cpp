// A call of attention by a program in Python that made the same call before: from torch's tensors to the kernel without Python's own code.
// The package gpu_headroom checks every call that is new and keeps its form here; what is not known here it does itself. Everything
// below runs with Python's lock held, so it has no lock of its own.
#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <optional>
#include <span>

#include "capi/python_forms.h"

namespace headroom::capi::python {

namespace {

// False after an error, which Python has.
bool run(const Form& f, const Pass& pass, std::span<void* const> pointers) {
  const auto& py = interpreter();
  void* stream = nullptr;
  if (f.on_gpu() && given->exchange->current_stream(dlpack::cuda, f.device().index, &stream) != 0) return false;
  ThreadState* const state = py.PyEval_SaveThread();
  const headroom_status status = headroom_attention_call_run(pass.call, pointers.data(), std::int32_t(pointers.size()), stream);
  py.PyEval_RestoreThread(state);
  if (status == HEADROOM_OK) return true;
  const Ref number(py.PyLong_FromLongLong(status));
  if (number) call(given->failed.get(), {number.get()});
  return false;
}

// Where the seed of dropout lies behind the tensors that each call has, and how many pointers there are then (headroom.h's order; the others are null).
constexpr std::size_t random_forward = 11, all_forward = 13, random_backward = 16, all_backward = 18;

struct Made {
  Ref o, lse, random;  // random: nothing without dropout
};

std::optional<Made> run_forward(const Form& f, const std::array<Object*, 3>& qkv, const std::array<Read, 3>& at) {
  constexpr std::size_t plain = 7;
  std::array<void*, all_forward> pointers{at[0].data, at[1].data, at[2].data};  // and o, lse, nothing that is saved, workspace
  Made made{make(f.o, qkv), {}, {}};
  if (!begins(made.o, pointers[3])) return {};
  if (f.drops()) {
    made.random = call(f.draw.get());
    if (!begins(made.random, pointers[random_forward])) return {};
  }
  made.lse = call(given->empty_like.get(), {f.like_lse.get()});
  Workspace workspace;
  if (!begins(made.lse, pointers[4]) || !workspace.take(f.pass, f.device())) return {};
  pointers[6] = workspace.data();
  if (!run(f, f.pass, std::span(pointers).first(f.drops() ? all_forward : plain))) return {};
  return made;
}

// The pass for tensors like these; Python is asked about new ones. nullptr: none, or an error.
const BackwardForm* backward_of(Form& f, const std::array<Object*, 6>& tensors, const std::array<Read, 6>& at, Object* random) {
  const auto is = [&](const auto& b) { return std::ranges::equal(b->of, at, {}, {}, &Read::view); };
  const auto found = std::ranges::find_if(f.backward, is);
  if (found != f.backward.end()) return found->get();
  if (f.backward.size() >= most_alike) return nullptr;
  const auto& py = interpreter();
  const Ref said =
      call(given->learn.get(), {f.pass.owner.get(), tensors[0], tensors[1], tensors[2], tensors[3], tensors[4], tensors[5], random});
  if (!said) return nullptr;
  auto learnt = std::make_unique<BackwardForm>();
  std::ranges::transform(at, learnt->of.begin(), &Read::view);
  if (!is_none(said.get())) {  // (pass, dq, dk, dv)
    learnt->pass = pass_of(py.PyTuple_GetItem(said.get(), 0));
    for (Size i = 0; i < 3; ++i) learnt->gradients[std::size_t(i)] = output_of(py.PyTuple_GetItem(said.get(), i + 1));
  }
  return f.backward.emplace_back(std::move(learnt)).get();
}

View seed_view(const dlpack::Device& device) {  // as it was made; what hooks of saved tensors give back may lie otherwise
  View v{.rank = 1, .type = dlpack::int64, .device = device};
  v.sizes[0] = 2, v.sizes[4] = 1;
  return v;
}

// The gradients; empty where Python has to do it, or has an error.
Ref run_backward(Form& f, Object* d_o, Object* saved) {
  const auto& py = interpreter();
  std::array<Object*, 9> tensors{d_o};  // and q, k, v, o, lse, dq, dk, dv
  for (Size i = 0; i < 5; ++i) tensors[std::size_t(i) + 1] = py.PyTuple_GetItem(saved, i);
  std::array<Object*, 6> inputs;
  std::copy_n(tensors.begin(), 6, inputs.begin());
  std::array<Read, 6> at;
  if (!read_all(inputs, at) || (f.on_gpu() && !aligned(at)) || negative(d_o)) return {};
  Object* const random = f.drops() ? py.PyTuple_GetItem(saved, 5) : py._Py_NoneStruct;
  const BackwardForm* const b = backward_of(f, inputs, at, random);
  if (!b || !b->pass.call) return {};
  std::array<Ref, 3> made;
  // q, k, v, o, lse, d_o; then dlse, dq, dk, dv, nothing that is saved, workspace
  constexpr std::size_t plain = 12;
  std::array<void*, all_backward> pointers{at[1].data, at[2].data, at[3].data, at[4].data, at[5].data, at[0].data};
  for (std::size_t i = 0; i < 3; ++i) {
    made[i] = make(b->gradients[i], tensors);
    if (!begins(made[i], pointers[7 + i])) return {};
    tensors[6 + i] = made[i].get();
  }
  Workspace workspace;
  if (!workspace.take(b->pass, f.device())) return {};
  pointers[11] = workspace.data();
  if (Read seed; f.drops()) {
    if (!read(random, seed) || seed.view != seed_view(f.device())) return {};
    pointers[random_backward] = seed.data;
  }
  if (!run(f, b->pass, std::span(pointers).first(f.drops() ? all_backward : plain))) return {};
  return tuple({made[0].get(), made[1].get(), made[2].get(), py._Py_NoneStruct, py._Py_NoneStruct});
}

// ---- what Python calls ----

bool is_differentiable(const std::array<Object*, 3>& qkv) {
  const auto is_true = [](const Ref& answer) { return answer.get() == interpreter()._Py_TrueStruct; };
  if (!is_true(call(given->grad_is_enabled.get()))) return false;
  return std::ranges::any_of(qkv, [&](Object* t) { return is_true(Ref(interpreter().PyObject_GetAttr(t, given->requires_grad.get()))); });
}

Object* result(std::optional<Made> made, Object* return_lse) {
  if (!made) return nullptr;
  return return_lse == interpreter()._Py_TrueStruct ? tuple({made->o.get(), made->lse.get()}).give() : made->o.give();
}

// attend(q, k, v, return_lse, asked): the result, or None where such a call is not known. asked: a tuple of all other arguments.
Object* attend(Object*, Object* const* arguments, Size) {
  const auto& py = interpreter();
  const std::array<Object*, 3> qkv{arguments[0], arguments[1], arguments[2]};
  Object* const return_lse = arguments[3];
  std::array<Read, 3> at;
  if (!read_all(qkv, at) || (at[0].view.device.type == dlpack::cuda && !aligned(at))) return none().give();
  if (return_lse != py._Py_TrueStruct && return_lse != py._Py_FalseStruct) return none().give();
  Object* const found = known(at, arguments[4]);
  if (!found) return none().give();
  const Ref capsule = Ref::also(found);
  const Form& f = *form_of(found);
  if (!as_when_kept(f) || std::ranges::any_of(qkv, negative)) return none().give();
  if (is_differentiable(qkv)) return call(given->apply.get(), {qkv[0], qkv[1], qkv[2], found, return_lse}).give();
  return result(run_forward(f, qkv, at), return_lse);
}

// forward(ctx, q, k, v, form, return_lse) of an autograd.Function.
Object* forward(Object*, Object* const* arguments, Size) {
  const auto& py = interpreter();
  Object* const ctx = arguments[0];
  const std::array<Object*, 3> qkv{arguments[1], arguments[2], arguments[3]};
  const Form* const f = form_of(arguments[4]);
  if (!f) return nullptr;
  std::array<Read, 3> at;
  if (!read_all(qkv, at)) return py.PyErr_Format(*py.PyExc_RuntimeError, "q, k or v is a tensor without memory");
  auto made = run_forward(*f, qkv, at);
  if (!made) return nullptr;
  const auto save = [&] {
    Object *const method = given->save_for_backward.get(), *const o = made->o.get(), *const lse = made->lse.get();
    return f->drops() ? call_method(method, {ctx, qkv[0], qkv[1], qkv[2], o, lse, made->random.get()})
                      : call_method(method, {ctx, qkv[0], qkv[1], qkv[2], o, lse});
  };
  if (!call_method(given->set_materialize_grads.get(), {ctx, py._Py_FalseStruct}) || !save() ||
      py.PyObject_SetAttr(ctx, given->form.get(), arguments[4]) != 0 ||
      py.PyObject_SetAttr(ctx, given->settled.get(), f->pass.owner.get()) != 0)  // for quick.py, where the compiler reads backward
    return nullptr;
  return result(std::move(made), arguments[5]);
}

// backward(ctx, d_o, dlse=None) of the same.
Object* backward(Object*, Object* const* arguments, Size count) {
  const auto& py = interpreter();
  Object *const ctx = arguments[0], *const d_o = arguments[1], *const dlse = count > 2 ? arguments[2] : py._Py_NoneStruct;
  const Ref capsule(py.PyObject_GetAttr(ctx, given->form.get()));
  Form* const f = capsule ? form_of(capsule.get()) : nullptr;
  if (!f) return nullptr;
  Ref saved(py.PyObject_GetAttr(ctx, given->saved_tensors.get()));
  if (!saved) return nullptr;
  const Ref second = call(given->grad_is_enabled.get());  // second derivatives are wanted
  if (!second) return nullptr;
  if (second.get() == py._Py_FalseStruct && is_none(dlse) && !is_none(d_o) && heard_by_as_many(*f)) {
    if (Ref made = run_backward(*f, d_o, saved.get()); made || py.PyErr_Occurred()) return made.give();
  }
  return call(given->general.get(), {f->pass.owner.get(), saved.get(), d_o, dlse}).give();
}

// keep(q, k, v, asked, pass, o, like_lse, draw): attend() serves such calls from now on.
Object* keep(Object*, Object* const* arguments, Size) {
  const std::array<Object*, 3> qkv{arguments[0], arguments[1], arguments[2]};
  std::array<Read, 3> at;
  if (!read_all(qkv, at)) return none().give();
  auto f = std::make_unique<Form>();
  std::ranges::transform(at, f->of.begin(), &Read::view);
  f->asked = Ref::also(arguments[3]);
  f->pass = pass_of(arguments[4]);
  f->o = output_of(arguments[5]);
  f->like_lse = Ref::also(arguments[6]);
  f->draw = Ref::also(arguments[7]);
  f->answers = answers();
  if (!f->answers) return nullptr;
  return keep_form(at, std::move(f)) ? none().give() : nullptr;
}

// set_up(exchange, Tensor, Parameter, empty_like, new_empty_strided, is_grad_enabled, ambient, apply, learn, general, failed), once.
Object* set_up(Object*, Object* const* a, Size) {
  const auto& py = interpreter();
  auto* const exchange = static_cast<dlpack::Exchange*>(py.PyCapsule_GetPointer(a[0], "dlpack_exchange_api"));
  if (!exchange) return nullptr;
  if (exchange->major != dlpack::major_version || !exchange->lend)
    return py.PyErr_Format(*py.PyExc_NotImplementedError, "another version of DLPack's exchange interface");
  const auto object = [&](int i) { return Ref::also(a[i]); };
  given =
      new Given{exchange, object(1), object(2), object(3), object(4), object(5), object(6), object(7), object(8), object(9), object(10)};
  return none().give();
}

template <Function body>
Object* guarded(Object* self, Object* const* arguments, Size count) {
  try {
    return body(self, arguments, count);
  } catch (const std::bad_alloc&) { return interpreter().PyErr_NoMemory(); }
}

Method methods[] = {{"attend", guarded<attend>, fastcall, nullptr},
                    {"forward", guarded<forward>, fastcall, nullptr},
                    {"backward", guarded<backward>, fastcall, nullptr},
                    {"keep", guarded<keep>, fastcall, nullptr},
                    {"set_up", guarded<set_up>, fastcall, nullptr}};

}  // namespace
}  // namespace headroom::capi::python

void* headroom_python_attention(void) {
  using namespace headroom::capi::python;
  if (!found_interpreter()) return nullptr;
  const auto& py = interpreter();
  Ref all(py.PyTuple_New(std::size(methods)));
  for (Size i = 0; all && i < Size(std::size(methods)); ++i) {
    Object* const made = py.PyCFunction_NewEx(&methods[i], nullptr, nullptr);
    if (!made) return nullptr;
    py.PyTuple_SetItem(all.get(), i, made);
  }
  return all.give();
}
