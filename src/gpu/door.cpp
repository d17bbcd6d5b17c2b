// The program's side of the edge: finds libheadroom_cuda.so, opens it once and sets every call that the program makes.
#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <unordered_map>

#include "base/beside_program.h"
#include "gpu/beside.h"

namespace headroom::beside {

namespace {

constinit Slot* last_slot = nullptr;

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

// A library that was copied in part has its head, and dlopen() ends the process by SIGBUS where it touches what is not there.
std::string why_not_whole(const std::string& file) {  // empty, too, for what dlopen() refuses itself
  std::ifstream in(file, std::ios::binary | std::ios::ate);
  const auto bytes = std::uint64_t(in.tellg());
  Elf64_Ehdr head{};
  if (!in.seekg(0) || !in.read(reinterpret_cast<char*>(&head), sizeof head) || std::memcmp(head.e_ident, ELFMAG, SELFMAG) != 0) return "";
  std::uint64_t needed = 0;
  for (int i = 0; i < head.e_phnum; ++i) {
    Elf64_Phdr part{};
    in.seekg(std::streamoff(head.e_phoff) + std::streamoff(i) * head.e_phentsize);
    if (!in.read(reinterpret_cast<char*>(&part), sizeof part)) return fmt::format("{} is cut off within its first bytes", file);
    if (part.p_type == PT_LOAD) needed = std::max(needed, part.p_offset + part.p_filesz);
  }
  return bytes < needed ? fmt::format("{} is cut off: it has {} of {} bytes", file, bytes, needed) : "";
}

struct Opened {
  bool something = false;    // a file that should be the library
  std::string why_not = {};  // empty: it is open
};

Opened open() {
  constexpr const char* name = "libheadroom_cuda.so";
  const char* const given = std::getenv("HEADROOM_CUDA_LIBRARY");
  const std::string file = given && *given ? given : file_beside_program(name);
  if (file.empty()) return {false, fmt::format("there are no GPU kernels beside this program: 'make build' builds {} where nvcc is", name)};
  const auto not_loaded = [](const std::string& why) {
    return Opened{true, fmt::format("the GPU kernels beside this program cannot be loaded: {}", why)};
  };
  if (const std::string why = why_not_whole(file); !why.empty()) return not_loaded(why);
  void* const library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) return not_loaded(dlerror());
  const auto entry = reinterpret_cast<Entry>(dlsym(library, "headroom_cuda"));
  if (!entry) return {true, another_build(file, "it has no headroom_cuda")};
  const Door* const door = entry();
  if (std::string_view(door->build) != this_build)
    return {true, another_build(file, fmt::format("it is {}, this is {}", door->build, this_build))};
  return {true, set_all(file, *door)};
}

const Opened& opened() {
  static const Opened once = open();
  return once;
}

}  // namespace

const std::string& why_absent() { return opened().why_not; }
bool here() { return why_absent().empty(); }
bool refused() { return opened().something && !here(); }

Slot::Slot(const char* name, std::uint64_t stamp) noexcept : name_(name), stamp_(stamp), next_(std::exchange(last_slot, this)) {}
Slot* Slot::first() { return last_slot; }
void* Slot::missing() {
  check(here(), Code::unsupported, "{}", why_absent());
  return at_.load(std::memory_order_acquire);
}

}  // namespace headroom::beside
