#include "capi/python.h"

#include <dlfcn.h>

namespace headroom::capi::python {
namespace {

Interpreter found;

template <class T>
bool find(T& out, const char* name) {
  out = reinterpret_cast<T>(dlsym(RTLD_DEFAULT, name));
  return out != nullptr;
}

bool find_all() {
  auto& p = found;
#define FIND(name) find(p.name, #name)
  return FIND(Py_IncRef) && FIND(Py_DecRef) && FIND(PyObject_Type) && FIND(PyObject_Vectorcall) && FIND(PyObject_VectorcallMethod) &&
         FIND(PyObject_GetAttr) && FIND(PyObject_SetAttr) && FIND(PyObject_RichCompareBool) && FIND(PyTuple_New) && FIND(PyTuple_SetItem) &&
         FIND(PyTuple_GetItem) && FIND(PyTuple_Size) && FIND(PyLong_FromLongLong) && FIND(PyLong_AsLongLong) && FIND(PyLong_AsVoidPtr) &&
         FIND(PyUnicode_InternFromString) && FIND(PyCapsule_New) && FIND(PyCapsule_GetPointer) && FIND(PyCFunction_NewEx) &&
         FIND(PyErr_Occurred) && FIND(PyErr_Clear) && FIND(PyErr_NoMemory) && FIND(PyErr_Format) && FIND(PyExc_RuntimeError) &&
         FIND(PyExc_NotImplementedError) && FIND(PyEval_SaveThread) && FIND(PyEval_RestoreThread) && FIND(_Py_NoneStruct) &&
         FIND(_Py_TrueStruct) && FIND(_Py_FalseStruct) && FIND(PyLong_Type) && FIND(PyFloat_Type) && FIND(PyUnicode_Type) &&
         FIND(PyTuple_Type);
#undef FIND
}

}  // namespace

bool found_interpreter() {
  static const bool all = find_all();
  return all;
}

const Interpreter& interpreter() noexcept { return found; }

Ref tuple(std::initializer_list<Object*> borrowed) {
  const auto& py = interpreter();
  Ref made(py.PyTuple_New(Size(borrowed.size())));
  Size at = 0;
  for (Object* o : borrowed) {
    if (!made) break;
    py.Py_IncRef(o);
    py.PyTuple_SetItem(made.get(), at++, o);
  }
  return made;
}

bool same(Object* a, Object* b) {
  if (a == b) return true;
  const auto& py = interpreter();
  const Ref type(py.PyObject_Type(a));
  if (const Ref other(py.PyObject_Type(b)); type.get() != other.get()) return false;
  if (type.get() == py.PyTuple_Type) {
    const Size n = py.PyTuple_Size(a);
    if (py.PyTuple_Size(b) != n) return false;
    for (Size i = 0; i < n; ++i)
      if (!same(py.PyTuple_GetItem(a, i), py.PyTuple_GetItem(b, i))) return false;
    return true;
  }
  if (type.get() != py.PyLong_Type && type.get() != py.PyFloat_Type && type.get() != py.PyUnicode_Type) return false;
  constexpr int equal = 2;  // Py_EQ
  return py.PyObject_RichCompareBool(a, b, equal) == 1;
}

}  // namespace headroom::capi::python
