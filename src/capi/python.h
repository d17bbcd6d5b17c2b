// Python's C interface without its headers: functions of the interpreter that this process runs, found by their names. Python has all of
// them since 3.11, and since 3.12 its stable interface does.
#pragma once
#include <cstddef>
#include <initializer_list>
#include <utility>

namespace headroom::capi::python {

struct Object;       // a PyObject
struct ThreadState;  // a PyThreadState
using Size = std::ptrdiff_t;
using Function = Object* (*)(Object* self, Object* const* arguments, Size count);

struct Method {  // a PyMethodDef
  const char* name;
  Function function;
  int flags;
  const char* doc;
};
constexpr int fastcall = 0x80;  // METH_FASTCALL

struct Interpreter {
  void (*Py_IncRef)(Object*);
  void (*Py_DecRef)(Object*);
  Object* (*PyObject_Type)(Object*);
  Object* (*PyObject_Vectorcall)(Object*, Object* const* arguments, std::size_t count, Object* names);
  Object* (*PyObject_VectorcallMethod)(Object* name, Object* const* arguments, std::size_t count, Object* names);
  Object* (*PyObject_GetAttr)(Object*, Object* name);
  int (*PyObject_SetAttr)(Object*, Object* name, Object* value);
  int (*PyObject_RichCompareBool)(Object*, Object*, int how);
  Object* (*PyTuple_New)(Size);
  int (*PyTuple_SetItem)(Object*, Size, Object* stolen);
  Object* (*PyTuple_GetItem)(Object*, Size);
  Size (*PyTuple_Size)(Object*);
  Object* (*PyLong_FromLongLong)(long long);
  long long (*PyLong_AsLongLong)(Object*);
  void* (*PyLong_AsVoidPtr)(Object*);
  Object* (*PyUnicode_InternFromString)(const char*);
  Object* (*PyCapsule_New)(void*, const char* name, void (*destructor)(Object*));
  void* (*PyCapsule_GetPointer)(Object*, const char* name);
  Object* (*PyCFunction_NewEx)(Method*, Object* self, Object* module);
  Object* (*PyErr_Occurred)();
  void (*PyErr_Clear)();
  Object* (*PyErr_NoMemory)();
  Object* (*PyErr_Format)(Object* type, const char* format, ...);
  ThreadState* (*PyEval_SaveThread)();
  void (*PyEval_RestoreThread)(ThreadState*);
  Object *_Py_NoneStruct, *_Py_TrueStruct, *_Py_FalseStruct;
  Object *PyLong_Type, *PyFloat_Type, *PyUnicode_Type, *PyTuple_Type;
  Object **PyExc_RuntimeError, **PyExc_NotImplementedError;
};

bool found_interpreter();  // whether this process has a Python with all of these; fills what `interpreter()` returns
const Interpreter& interpreter() noexcept;

// An object of Python's that is given back at the brace; empty after a call that failed, and then Python has the error.
class Ref {
 public:
  Ref() = default;
  explicit Ref(Object* owned) : object_(owned) {}
  static Ref also(Object* borrowed) {
    interpreter().Py_IncRef(borrowed);
    return Ref(borrowed);
  }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() {
    if (object_) interpreter().Py_DecRef(object_);
  }
  explicit operator bool() const { return object_ != nullptr; }
  Object* get() const { return object_; }
  Object* give() { return std::exchange(object_, nullptr); }

 private:
  Object* object_ = nullptr;
};

inline Ref call(Object* function, std::initializer_list<Object*> arguments = {}) {
  return Ref(interpreter().PyObject_Vectorcall(function, arguments.begin(), arguments.size(), nullptr));
}
inline Ref call_method(Object* name, std::initializer_list<Object*> self_and_arguments) {
  return Ref(interpreter().PyObject_VectorcallMethod(name, self_and_arguments.begin(), self_and_arguments.size(), nullptr));
}
inline Ref none() { return Ref::also(interpreter()._Py_NoneStruct); }
inline bool is_none(Object* o) { return o == interpreter()._Py_NoneStruct; }

Ref tuple(std::initializer_list<Object*> borrowed);
bool same(Object* a, Object* b);  // one object, or equal numbers, texts or tuples of one type: True is not 1

}  // namespace headroom::capi::python
