#include "dry/library/world.h"

#include <dlfcn.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "dry/library/public.h"
#include "dry/library/python.h"
#include "dry/library/recorder.h"
#include "dry/settings.h"

namespace headroom::dry {

namespace {

// As many as the forecast was told, or as a launcher started ranks for: the forecast sees no launcher that is called by a script.
int asked_cards() {
  const char* const all = std::getenv(cards_variable);
  const char* const ranks = std::getenv("LOCAL_WORLD_SIZE");
  return std::max(all ? std::atoi(all) : 1, ranks ? std::min(std::atoi(ranks), most_cards) : 0);
}

// The cards that are visible, by their index on the host: "0,2"; as CUDA does, the list ends at the first that is none. A host has each card that is named:
// programs choose the free one of the machine that they were written for.
std::vector<int> visible_cards() {
  const char* at = std::getenv("CUDA_VISIBLE_DEVICES");
  std::vector<int> out;
  if (!at) {
    for (int i = 0; i < asked_cards(); ++i) out.push_back(i);
    return out;
  }
  while (*at) {
    char* end = nullptr;
    const long i = std::strtol(at, &end, 10);
    if (end == at || i < 0 || i >= most_cards || std::ranges::count(out, int(i))) break;
    out.push_back(int(i));
    at = *end == ',' ? end + 1 : end;
    if (*end && *end != ',') break;
  }
  return out;
}

const std::vector<int>& visible() {
  static const auto& cards = *new std::vector<int>(visible_cards());
  return cards;
}

}  // namespace

const Card& card() {
  static const Card& one = *[] {
    auto* const c = new Card;
    const char* const text = std::getenv(card_variable);
    if (text && !read_card(text, *c)) std::fprintf(stderr, "headroom dry: %s=%s is not understood\n", card_variable, text);
    return c;
  }();
  return one;
}

int host_cards() {
  int cards = asked_cards();
  for (const int i : visible_cards()) cards = std::max(cards, i + 1);
  return cards;
}
int devices() { return int(visible().size()); }
int physical(int device) { return device >= 0 && device < devices() ? visible()[std::size_t(device)] : 0; }

int& device() {
  static thread_local int current = 0;
  return current;
}

const char* folder() {
  static const char* const path = std::getenv(folder_variable);
  return path;
}

int threads_of_unit() {
  const auto sm = card().sm;
  return sm == 75 ? 1024 : sm == 86 || sm == 87 || sm == 89 || sm >= 120 ? 1536 : 2048;
}

int blocks_of_unit() {
  const auto sm = card().sm;
  return sm == 75 || sm == 86 || sm == 87 ? 16 : sm == 89 || sm >= 120 ? 24 : 32;
}

int cuda_version() {  // by the name of the runtime that is loaded; the program's own is asked by that name
  static const int version = [] {
    for (const auto& [name, number] : {std::pair("libcudart.so.13", 13000), std::pair("libcudart.so.12", 12040)})
      if (void* const library = dlopen(name, RTLD_NOW | RTLD_NOLOAD)) {
        dlclose(library);
        return number;
      }
    return 13000;
  }();
  return version;
}

void say(const char* what, const char* name) {
  static const bool aloud = [] {
    const char* const talk = std::getenv(talk_variable);
    return talk && *talk == '1';
  }();
  if (!aloud) return;
  static std::mutex mutex;
  static auto& said = *new std::set<std::string>;
  const std::string sentence = std::string(what) + " " + name;
  const std::lock_guard lock(mutex);
  if (said.insert(sentence).second) std::fprintf(stderr, "headroom dry: %s\n", sentence.c_str());
}

void note(Said said, std::string_view name, std::uint64_t bytes) {
  static std::mutex mutex;
  struct Noted {
    std::uint64_t count = 0, bytes = 0;
  };
  static auto& all = *new std::map<std::pair<Said, std::string>, Noted>;
  std::uint64_t count;
  {
    const std::lock_guard lock(mutex);
    Noted& noted = all[{said, std::string(name)}];
    count = ++noted.count;
    const bool more = bytes > noted.bytes && said == Said::by_rule;  // the most counts
    noted.bytes = std::max(noted.bytes, bytes);
    if (!std::has_single_bit(count) && !more) return;
  }
  Recorder& record = Recorder::get();
  record.add(Note{said, record.name(name), count, bytes, std::uint32_t(device()), 0, here()});
}

int accepted(const char* name, int result) {
  note(Said::accepted, name);
  say("only accepted:", name);
  return result;
}

int refused(const char* name, int result) {
  note(Said::refused, name);
  say("not supported:", name);
  return result;
}

}  // namespace headroom::dry
