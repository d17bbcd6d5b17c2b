// The program's side of the edge: finds libheadroom_cuda.so, opens it once and sets every call that the program makes.
#include <dlfcn.h>

#include <cstdlib>
#include <unordered_map>

#include "base/beside_program.h"
#include "gpu/beside.h"

namespace headroom::beside {

namespace {

constinit Slot* last_slot = nullptr;
constinit std::atomic<bool> is_open{false};

std::string another_build(const std::string& file, const std::string& how) {
  return fmt::format("{} belongs to another build of headroom: {}", file, how);
}

std::string set_all(const std::string& file, const Door& door) {  // why not
  std::unordered_map<std::string_view, const Offer*> offered;
  for (const Offers* some = door.first; some; some = some->next)
    for (const Offer& o : some->all) offered[o.name] = &o;
  for (Slot* s = Slot::first(); s; s = s->next()) {
    const auto found = offered.find(s->name());
    if (found == offered.end()) return another_build(file, fmt::format("it lacks {}", s->name()));
    if (found->second->stamp != s->stamp()) return another_build(file, fmt::format("it has other types for {}", s->name()));
  }
  for (Slot* s = Slot::first(); s; s = s->next()) s->set(offered.at(s->name())->enter);
  return "";
}

std::string open() {  // why not
  constexpr const char* name = "libheadroom_cuda.so";
  const char* const given = std::getenv("HEADROOM_CUDA");
  const std::string file = given ? given : file_beside_program(name);
  if (file.empty()) return fmt::format("there are no GPU kernels beside this program: 'make build' builds {} where nvcc is", name);
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return fmt::format("the GPU kernels beside this program cannot be loaded: {}", dlerror());
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "headroom_cuda"));
  if (!entry) return another_build(file, "it has no headroom_cuda");
  const Door* const door = entry();
  if (std::string_view(door->build) != this_build) return another_build(file, fmt::format("it is {}, this is {}", door->build, this_build));
  return set_all(file, *door);
}

}  // namespace

const std::string& why_absent() {
  static const std::string why = [] {
    std::string not_here = open();
    is_open.store(not_here.empty(), std::memory_order_release);
    return not_here;
  }();
  return why;
}
bool here() { return why_absent().empty(); }
bool opened() noexcept { return is_open.load(std::memory_order_acquire); }

Slot::Slot(const char* name, std::uint64_t stamp) noexcept : name_(name), stamp_(stamp), next_(std::exchange(last_slot, this)) {}
Slot* Slot::first() { return last_slot; }
void* Slot::missing() {
  check(here(), Code::unsupported, "{}", why_absent());
  return at_.load(std::memory_order_acquire);
}

}  // namespace headroom::beside
