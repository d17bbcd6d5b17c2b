#include "capi/python_forms.h"

#include <algorithm>
#include <unordered_map>

namespace headroom::capi::python {

namespace {

constexpr const char* form_name = "headroom.form";
constexpr std::size_t most_forms = 4096;

std::uint64_t hash_of(const std::array<Read, 3>& tensors) {
  std::uint64_t h = 0;
  const auto add = [&h](std::int64_t n) { h = (h ^ std::uint64_t(n)) * 0x9E3779B97F4A7C15u, h ^= h >> 29; };
  for (const Read& t : tensors) {
    for (const auto n : t.view.sizes) add(n);
    add(t.view.type.code << 8 | t.view.type.bits), add(t.view.device.index << 8 | t.view.device.type);
  }
  return h;
}

struct Forms {
  std::unordered_map<std::uint64_t, std::vector<Ref>> by_hash;  // capsules
  std::size_t count = 0;
};
Forms& forms() {
  static auto* kept = new Forms;  // never destroyed: the interpreter ends before the process does
  return *kept;
}

}  // namespace

Form* form_of(Object* capsule) { return static_cast<Form*>(interpreter().PyCapsule_GetPointer(capsule, form_name)); }

Object* known(const std::array<Read, 3>& tensors, Object* asked) {
  const auto found = forms().by_hash.find(hash_of(tensors));
  if (found == forms().by_hash.end()) return nullptr;
  for (const Ref& capsule : found->second) {
    const Form& f = *form_of(capsule.get());
    if (std::ranges::equal(f.of, tensors, {}, {}, &Read::view) && same(f.asked.get(), asked)) return capsule.get();
  }
  return nullptr;
}

Ref answers() {
  const auto& py = interpreter();
  const Size n = py.PyTuple_Size(given->ambient.get());
  Ref all(py.PyTuple_New(n));
  for (Size i = 0; all && i < n; ++i) {
    Ref answer = call(py.PyTuple_GetItem(given->ambient.get(), i));
    if (!answer) return {};
    py.PyTuple_SetItem(all.get(), i, answer.give());
  }
  return all;
}

bool as_when_kept(const Form& f) {
  const auto& py = interpreter();
  for (Size i = 0, n = py.PyTuple_Size(f.answers.get()); i < n; ++i) {
    const Ref answer = call(py.PyTuple_GetItem(given->ambient.get(), i));
    if (!answer) py.PyErr_Clear();
    if (!answer || !same(answer.get(), py.PyTuple_GetItem(f.answers.get(), i))) return false;
  }
  return true;
}

bool heard_by_as_many(const Form& f) {
  const auto& py = interpreter();
  const Ref answer = call(py.PyTuple_GetItem(given->ambient.get(), 0));
  if (!answer) py.PyErr_Clear();
  return answer && same(answer.get(), py.PyTuple_GetItem(f.answers.get(), 0));
}

bool keep_form(const std::array<Read, 3>& qkv, std::unique_ptr<Form> form) {
  Ref capsule(interpreter().PyCapsule_New(form.get(), form_name, [](Object* c) { delete form_of(c); }));
  if (!capsule) return false;
  form.release();
  Forms cleared;  // ends at the brace: what Python does then may come back to here
  if (forms().count >= most_forms) std::swap(cleared, forms());
  auto& alike = forms().by_hash[hash_of(qkv)];
  if (alike.size() >= most_alike) return true;  // a scale that is another one in each call, say
  alike.push_back(std::move(capsule));
  ++forms().count;
  return true;
}

}  // namespace headroom::capi::python
