// Calls into libheadroom_cuda.so, the kernels beside the program: built where nvcc is, opened at run time, so that the program is one build for
// machines with a GPU and without.
//
// Both sides have the same declaration of a function. The library defines it and offers it: Offers all{offer<forward_cuda>()}; the program
// defines it as a call: void forward_cuda(const Forward& f, Context& c) { beside::call<forward_cuda>(f, c); }.
// No exception crosses, because each side may have a C++ runtime of its own: what the library throws returns as a Failure and is thrown again
// here; what a callback of the program throws waits here until the library has returned.
#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/error.h"

namespace headroom::beside {

bool here();                      // whether the library is beside the program; opens it
bool refused();                   // whether a file is there that should be it, and cannot be used
const std::string& why_absent();  // one sentence, where it is not here

// A class whose constructor and destructor are the library's: the program's call these, on its own object.
template <class C, class... A>
void construct(C* at, A... a) {
  ::new (at) C(std::forward<A>(a)...);
}
template <class C>
void destroy(C* at) {
  at->~C();
}

// What follows is how a call crosses.

struct Failure {
  // What is thrown again: an Error, std::bad_alloc, what the callback threw, std::logic_error, and for any other std::runtime_error.
  enum class Kind : std::uint8_t { error, no_memory, callback, logic_error, runtime_error } kind;
  Code code = Code::cuda;  // an Error's code, and where it was thrown
  const char* file = "";
  int line = 0;
  std::string text = {};
};
Failure* caught() noexcept;                                                  // in the library: what is being handled
[[noreturn]] void rethrow(Failure*, const std::exception_ptr& of_callback);  // takes the Failure

struct Callback {                   // a std::function of the program's
  bool (*run)(void* who) noexcept;  // false: it threw
  void* who;
};
struct CallbackThrew {};  // goes through the library's frames in place of the program's exception

template <class A>
struct Crossing {  // the type in which an argument crosses to the entry
  using Wire = std::conditional_t<std::is_class_v<A>, const A&, A>;
  Crossing(Wire a, std::exception_ptr&) : wire(a) {}
  Wire wire;
  static A arrived(Wire a) { return static_cast<A>(a); }
};
template <>
struct Crossing<const std::function<void()>&> {
  using Wire = Callback;
  Crossing(const std::function<void()>& f, std::exception_ptr& threw) : wire{run, this}, work_(f), threw_(threw) {}
  Callback wire;
  static std::function<void()> arrived(Callback c) {
    return [c] {
      if (!c.run(c.who)) throw CallbackThrew();
    };
  }

 private:
  static bool run(void* who) noexcept {
    auto& self = *static_cast<Crossing*>(who);
    try {
      self.work_();
      return true;
    } catch (...) { self.threw_ = std::current_exception(); }
    return false;
  }
  const std::function<void()>& work_;
  std::exception_ptr& threw_;
};

// The sizes of what crosses: they differ where program and library were compiled from different sources, or with different words of CUDA's.
template <class T>
constexpr std::uint64_t size_for_stamp() {
  using Bare = std::remove_cv_t<std::remove_pointer_t<std::remove_reference_t<T>>>;
  if constexpr (requires { sizeof(Bare); })
    return sizeof(Bare);
  else
    return 0;  // CUDA's handles, void, functions
}
template <class... T>
constexpr std::uint64_t stamp_of_types() {
  std::uint64_t stamp = 0xcbf29ce484222325ull;
  for (const std::uint64_t size : {std::uint64_t(sizeof...(T)), size_for_stamp<T>()...}) stamp = (stamp ^ size) * 0x100000001b3ull;
  return stamp;
}

template <class R, class... A>
struct Signature {
  using Entry = Failure* (*)(void* result, typename Crossing<A>::Wire...) noexcept;
  static constexpr std::uint64_t stamp = stamp_of_types<R, A...>();

  template <auto f>
  static Failure* enter(void* result, typename Crossing<A>::Wire... a) noexcept {  // runs in the library
    try {
      if constexpr (std::is_void_v<R>)
        std::invoke(f, Crossing<A>::arrived(a)...);
      else
        ::new (result) R(std::invoke(f, Crossing<A>::arrived(a)...));
      return nullptr;
    } catch (...) { return caught(); }
  }

  static R call(void* at, A... a) {
    const auto entry = reinterpret_cast<Entry>(at);
    std::exception_ptr threw;
    if constexpr (std::is_void_v<R>) {
      if (Failure* const failed = entry(nullptr, Crossing<A>(a, threw).wire...)) [[unlikely]]
        rethrow(failed, threw);
    } else {
      alignas(R) std::byte room[sizeof(R)];
      if (Failure* const failed = entry(room, Crossing<A>(a, threw).wire...)) [[unlikely]]
        rethrow(failed, threw);
      R* const made = std::launder(reinterpret_cast<R*>(room));
      R result = std::move(*made);
      std::destroy_at(made);
      return result;
    }
  }
};
template <class R, class... A>
Signature<R, A...> signature_of(R (*)(A...));
template <class R, class C, class... A>
Signature<R, C*, A...> signature_of(R (C::*)(A...));
template <class R, class C, class... A>
Signature<R, const C*, A...> signature_of(R (C::*)(A...) const);
template <auto f>
using SignatureOf = decltype(signature_of(f));

template <auto f>
constexpr const char* name_of() {
  return __PRETTY_FUNCTION__;  // it names f
}

// The program's side: one for each function that it calls. All are set when the library is opened.
class Slot {
 public:
  Slot(const char* name, std::uint64_t stamp) noexcept;  // the list of all
  void* at() {
    void* const found = at_.load(std::memory_order_acquire);
    return found ? found : missing();
  }
  void set(void* at) { at_.store(at, std::memory_order_release); }
  const char* name() const { return name_; }
  std::uint64_t stamp() const { return stamp_; }
  Slot* next() const { return next_; }
  static Slot* first();

 private:
  void* missing();  // opens the library; throws Error (unsupported) where it is not here

  const char* name_;
  std::uint64_t stamp_;
  std::atomic<void*> at_{nullptr};
  Slot* next_;
};
template <auto f>
inline Slot slot{name_of<f>(), SignatureOf<f>::stamp};

template <auto f, class = SignatureOf<f>>
struct Call;
template <auto f, class R, class... A>
struct Call<f, Signature<R, A...>> {
  R operator()(A... a) const { return Signature<R, A...>::call(slot<f>.at(), std::forward<A>(a)...); }
};
template <auto f>
inline constexpr Call<f> call;  // call<f>(…) as f(…)

// The library's side.
struct Offer {
  const char* name;
  std::uint64_t stamp;
  void* enter;
};
template <auto f>
Offer offer() {
  return {name_of<f>(), SignatureOf<f>::stamp, reinterpret_cast<void*>(&SignatureOf<f>::template enter<f>)};
}
struct Offers {
  Offers(std::initializer_list<Offer> some);  // joins the list of all
  std::vector<Offer> all;
  const Offers* next;
};
const Offers* all_offers();

struct Door {
  const char* build;  // this_build, as the library has it
  const Offers* first;
};
using Entry = const Door* (*)();      // the type of the one symbol, headroom_cuda
extern const char* const this_build;  // version, compiler, and a digest of the headers that both sides read (cmake/edge.cmake)

}  // namespace headroom::beside
