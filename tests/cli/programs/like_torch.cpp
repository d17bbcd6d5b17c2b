// A program that uses a card as PyTorch does, with only the public functions that PyTorch's allocator calls: segments by cudaMalloc, blocks
// reported to the profiler's function. Without the library that stands in for CUDA it finds none of them and says so.
// usage: like_torch [batch=N] [steps=N] [least=N] [catch] [fails] [killed] [spins] [forks] [leaves] [idle] [hides] [without-cuda] [pins] [levers] [pool] [spare] [routed [masked|drawn|differing] [both] [falling [alone]] [share] [held [unlikely]] [bounded] [some] [stumbles] [emptied]] [late] [reads] [until-low] [ended] [ended-at-once]
// [own-runtime] [fraction] [loops] [shares|shares-late] [opened] [opened-late] [silent]
// [settles] [evaluates] [exits] [neighbour] [tunes] [open] [threads]
// [spins-with=VARIABLE:WORD:FILE]   where the variable has the word: makes the file, and never ends
// [meets=FOLDER]   a run with other guesses: waits up to ten seconds until another one is there too, then both leave a file "met"
// [holds=FILE]   a run with other guesses: has the file's lock for half a second, and fails where another has it
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::int64_t mib = 1 << 20;

template <class F>
F found(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_DEFAULT, name));
}

using Malloc = int (*)(void**, std::size_t);
using Report = void (*)(void*, std::int64_t, std::size_t, std::size_t, std::uint16_t);
using Mark = void (*)(const char*, const char*, std::int64_t);

// Where the library only listens there is no CUDA here at all: addresses that nothing has.
int taken_from_nowhere(void** p, std::size_t bytes) {
  static std::uintptr_t next = 1 << 20;
  *p = reinterpret_cast<void*>(next);
  next += bytes;
  return 0;
}

auto cuda_malloc = found<Malloc>("cudaMalloc");
auto report = found<Report>("_ZN3c1027reportMemoryUsageToProfilerEPvlmmNS_6DeviceE");
const auto report_out_of_memory =
    found<void (*)(std::int64_t, std::size_t, std::size_t, std::uint16_t)>("_ZN3c1027reportOutOfMemoryToProfilerElmmNS_6DeviceE");
const auto mark = found<Mark>("headroom_dry_mark");
constexpr std::uint16_t on_card_0 = 1;

std::size_t allocated = 0, reserved = 0;

struct Segment {
  void* at = nullptr;
  std::int64_t bytes = 0;
};

// Another process, which opens memory of this one and has nothing else on the card. It is there before this one uses the card.
class Opener {
 public:
  Opener() {
    if (pipe(to_) != 0 || pipe(from_) != 0) std::exit(70);
    if (fork() != 0) return;
    Handle handle;
    void* there = nullptr;
    if (read(to_[0], &handle, sizeof handle) != sizeof handle) _exit(0);
    const char byte = found<int (*)(void**, Handle, unsigned)>("cudaIpcOpenMemHandle")(&there, handle, 1) == 0 ? 'a' : 'b';
    if (write(from_[1], &byte, 1) == 1) sleep(2);
    _exit(0);
  }
  void open(void* p) {
    Handle handle;
    char byte = 0;
    const bool sent = found<int (*)(Handle*, void*)>("cudaIpcGetMemHandle")(&handle, p) == 0 &&
                      write(to_[1], &handle, sizeof handle) == sizeof handle && read(from_[0], &byte, 1) == 1;
    if (!sent || byte != 'a') std::exit(70);
  }

 private:
  struct Handle {
    char bytes[64];
  };
  int to_[2], from_[2];
};

bool silent = false;  // its errors go elsewhere

[[noreturn]] void out_of_memory(std::int64_t bytes) {
  if (silent) std::exit(1);
  std::fprintf(stderr, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %lld MiB.\n", static_cast<long long>(bytes / mib));
  std::exit(1);
}

void meet(const std::filesystem::path& folder) {
  std::ofstream(folder / std::to_string(getpid())).close();
  const auto files = [&] { return std::distance(std::filesystem::directory_iterator(folder), {}); };
  for (int i = 0; i < 1000 && files() < 2; ++i) usleep(10000);
  if (files() >= 2) std::ofstream(folder / "met").close();
  std::filesystem::remove(folder / std::to_string(getpid()));
}

bool is_held(const std::string& path) {
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (flock(file, LOCK_EX | LOCK_NB) != 0) return true;
  usleep(500000);
  return false;
}

std::size_t allowed = ~std::size_t(0);  // by a fraction of the card

bool take(Segment& s, std::int64_t bytes) {  // a block that is a segment
  if (!s.at || s.bytes < bytes) {
    if (reserved + std::size_t(bytes) > allowed || cuda_malloc(&s.at, std::size_t(bytes)) != 0) {
      if (report_out_of_memory) report_out_of_memory(bytes, allocated, reserved, on_card_0);
      return false;
    }
    s.bytes = bytes;
    reserved += std::size_t(bytes);
  }
  allocated += std::size_t(bytes);
  report(s.at, bytes, allocated, reserved, on_card_0);
  return true;
}
void give(const Segment& s, std::int64_t bytes) {
  allocated -= std::size_t(bytes);
  report(s.at, -bytes, allocated, reserved, on_card_0);
}

}  // namespace

int main(int argc, char** argv) {
  std::int64_t batch = 1, steps = 2, least = 1;
  std::vector<std::string> words(argv + 1, argv + argc);
  const auto said = [&](const char* word) {
    for (const auto& w : words)
      if (w == word) return true;
    return false;
  };
  for (const auto& w : words) {
    if (w.rfind("batch=", 0) == 0) batch = std::atoll(w.c_str() + 6);
    if (w.rfind("steps=", 0) == 0) steps = std::atoll(w.c_str() + 6);
    if (w.rfind("least=", 0) == 0) least = std::atoll(w.c_str() + 6);
  }
  if (std::getenv("HEADROOM_DRY_ROUTING"))
    for (const std::string& w : words) {
      if (w.starts_with("meets=")) meet(w.substr(6));
      if (w.starts_with("holds=") && is_held(w.substr(6))) return 7;
    }
  std::printf("this is the program's own output\n");
  std::fflush(stdout);
  if (said("without-cuda")) cuda_malloc = taken_from_nowhere;
  if (!cuda_malloc || !report || !mark) return std::fprintf(stderr, "there is no CUDA here\n"), 9;
  if (said("hides")) {  // its cards, before it has asked for one
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    mark("torch", "2.11.0", 1);
    return 0;
  }
  if (said("idle")) return 0;
  if (said("pins")) {
    void *pinned = nullptr, *managed = nullptr;
    found<int (*)(void**, std::size_t, unsigned)>("cudaHostAlloc")(&pinned, 48 * mib, 0);
    found<int (*)(void**, std::size_t, unsigned)>("cudaMallocManaged")(&managed, 16 * mib, 1);
  }
  silent = said("silent");
  if (said("fraction")) {  // as the observer lets it hold
    mark("fraction", "train.py:3 0 0.0625", 0);
    std::size_t free = 0, total = 0;
    found<int (*)(std::size_t*, std::size_t*)>("cudaMemGetInfo")(&free, &total);
    const char* const card = std::getenv("HEADROOM_DRY_CARD");
    if (card && !std::strstr(card, "unlimited=1")) allowed = total / 16;
  }
  if (said("own-runtime")) {  // a runtime that is linked statically asks the driver for its private tables
    const void* table = nullptr;
    found<int (*)(const void**, const void*)>("cuGetExportTable")(&table, nullptr);
  }
  if (said("leaves") && fork() == 0) {  // a worker that outlives its parent
    close(0), close(1), close(2);
    sleep(60);
    _exit(0);
  }
  std::int64_t piece = 256 * mib;  // what is saved for each item of a batch
  if (said("levers")) {            // it does what `--try` asks for, as far as it has anything of the kind
    const auto has = [](const char* variable, std::string_view word) {
      const char* const value = std::getenv(variable);
      return value && std::string_view(value).find(word) != std::string_view::npos;
    };
    if (has("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True")) piece -= 64 * mib;
    if (has("HEADROOM_DRY_TRY", "checkpoint")) {
      piece /= 2;
      mark("replaced", "checkpoint: what is saved", 1);
    }
    if (has("HEADROOM_DRY_TRY", "sdpa")) mark("cannot", "sdpa: there is no attention:\n  1 of 1 calls", 0);
  }
  if (said("routed")) {  // its sizes follow from which experts tokens go to, or from how much of a mask is true
    const std::string_view asked = std::getenv("HEADROOM_DRY_ROUTING") ? std::getenv("HEADROOM_DRY_ROUTING") : "";
    const std::string_view how = asked.substr(0, asked.find('+'));
    if (said("falling")) {
      const char* const falls = said("share") ? "+shares" : "+falls";
      if (said("share") && asked.ends_with("+falls")) return 7;  // it takes the logarithm of 1 - p
      piece += asked.ends_with(falls) ? 16 * mib : asked.ends_with("+rises") ? -16 * mib : 0;
      mark("routed", "model.py:8", 5);
    }
    if (said("held")) {
      const char* const above = said("unlikely") ? "+likely" : "+above";
      if (said("unlikely") && asked.ends_with("+above")) return 7;
      piece += asked.ends_with(above) ? 24 * mib : asked.ends_with("+below") ? -24 * mib : 0;
      mark("routed", "model.py:9", 8);
      mark("run", "random+above|with 100 and more for each such number", 0);
      mark("run", "random+likely|with nearly 1 for each such number", 1);
      mark("run", "random+below|with -1 and less for each such number", 0);
      mark("run", "random+little|with 0.000001 and less for each such number", 1);
    }
    if (said("some") && how == "balanced") return 7;  // it cannot go on where nothing is true
    if (said("stumbles") && how == "nearly") return 7;
    if (said("emptied") && how == "worst") return 7;  // its mask says what is left out
    piece += how == "balanced" ? 64 * mib : how == "worst" ? -64 * mib : how == "nearly" && said("varied") ? 96 * mib : 0;
    if (!said("bounded")) mark("torch", "2.15.0", 1);  // PyTorch without a list of its requests: its upper end is not known
    if (said("both")) mark("routed", "model.py:5", 2), mark("routed", "model.py:6", 0);
    if (!said("alone")) mark("routed", "model.py:7", said("differing") ? 4 : said("drawn") ? 2 : said("masked") ? 1 : 0);
  }
  if (said("late")) {  // memory comes back when a second stream is done with it
    const std::string_view when = std::getenv("HEADROOM_DRY_EVENTS") ? std::getenv("HEADROOM_DRY_EVENTS") : "";
    piece += when == "late" ? 64 * mib : when == "at once" ? -64 * mib : 0;
    mark("torch", "2.15.0", 1);
    mark("events", "", 1);
  }
  if (said("pool")) {  // PyTorch with an allocator of the driver's, which reports no blocks
    mark("torch", "2.11.0", 1);
    report = [](void*, std::int64_t, std::size_t, std::size_t, std::uint16_t) {};
  }
  if (said("notes"))
    for (int i = 0; i < 2; ++i) mark("note", "times were not known", 0);
  Segment weights, saved, spare;
  if (said("neighbour")) {  // another process runs out, and a launcher would say so; this one goes on until it is ended
    const pid_t child = fork();
    if (child == 0) {
      if (!take(spare, batch * 128 * piece)) out_of_memory(batch * 128 * piece);
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (take(weights, 64 * mib)) mark("step", "", 1), mark("end", "enough steps", 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 70;
  }
  if (said("spare")) {  // a segment that nothing uses again
    if (!take(spare, 1024 * mib)) out_of_memory(1024 * mib);
    give(spare, 1024 * mib);
  }
  std::unique_ptr<Opener> opener;
  if (said("opened") || said("opened-late")) opener = std::make_unique<Opener>();
  int child_is_there[2], parent_is_done[2];
  if (said("shares")) {  // a second process on this card; this one reserves most, and that one has most at once
    if (pipe(child_is_there) != 0 || pipe(parent_is_done) != 0) return 70;
    if (fork() == 0) {
      close(parent_is_done[1]);
      char byte = take(spare, 900 * mib) ? 'a' : 'b';
      if (write(child_is_there[1], &byte, 1) == 1) (void)!read(parent_is_done[0], &byte, 1);
      _exit(0);
    }
    char byte = 0;
    if (read(child_is_there[0], &byte, 1) != 1 || byte != 'a') return 70;
    Segment one, other;
    for (Segment* s : {&one, &other}) {
      if (!take(*s, 512 * mib)) out_of_memory(512 * mib);
      give(*s, 512 * mib);
    }
  }
  if (said("shares-late")) {  // a second process, which takes a little where this one has taken all that it will
    if (pipe(child_is_there) != 0 || pipe(parent_is_done) != 0) return 70;
    if (fork() == 0) {
      char byte = 0;
      if (read(parent_is_done[0], &byte, 1) == 1 && take(spare, 20 * mib)) (void)!write(child_is_there[1], &byte, 1);
      _exit(0);
    }
  }
  if (!take(weights, 64 * mib)) out_of_memory(64 * mib);
  if (said("opened")) opener->open(weights.at);
  for (const auto& w : words)
    if (w.rfind("spins-with=", 0) == 0) {
      const auto first = w.find(':'), second = w.find(':', first + 1);
      const char* const value = std::getenv(w.substr(11, first - 11).c_str());
      if (!value || std::string_view(value).find(w.substr(first + 1, second - first - 1)) == std::string_view::npos) continue;
      std::fclose(std::fopen(w.substr(second + 1).c_str(), "w"));
      for (;;) usleep(10000);
    }
  for (std::int64_t step = 1; step <= steps; ++step) {
    mark("phase", "forward", 0);
    while (!take(saved, batch * piece)) {
      if (!said("catch") || batch <= least) out_of_memory(batch * piece);
      batch /= 2;
    }
    mark("phase", "backward", 0);
    give(saved, batch * piece);
    mark("phase", "", 0);
    mark("step", "", step);
    if (said("reads") || said("until-low")) mark("value", "train.py:9 float32", step);
    if (said("until-low")) {  // while loss > 3
      const char* const loss = std::getenv("HEADROOM_DRY_FLOAT");
      if ((loss ? std::atof(loss) : 0.75) <= 3) return 0;
    }
    if (said("forks") && step == 1 && fork() == 0) _exit(0);
    if (said("open") && step == 1) mark("open", "a value decides how much is kept", 1);
    if (said("threads") && step == 1) mark("open", "two threads train at once", 2);
    if (said("tunes") && step == 1) mark("tuned", "kernels would be chosen by their times", 0);
    if (said("settles") && step == 2) mark("settled", "the peaks of two optimizer steps agree", 0);
    if ((said("ended") && step == 2) || (said("ended-at-once") && step == 1)) {  // as the observer ends a program
      mark("end", "the peaks of two optimizer steps agree", 0);
      return 0;
    }
    if (said("fails")) return std::fprintf(stderr, "ValueError: the program's own mistake\n"), 7;
    if (said("killed")) raise(SIGKILL);
  }
  if (said("evaluates") && !take(spare, batch * 2 * piece)) out_of_memory(batch * 2 * piece);
  if (char byte = 'a'; said("shares-late") && (write(parent_is_done[1], &byte, 1) != 1 || read(child_is_there[0], &byte, 1) != 1))
    return 70;
  if (said("exits")) return 5;
  if (said("opened-late")) opener->open(weights.at);
  if (said("loops")) mark("loop", "train.py:9", 128);
  if (said("spins"))
    for (;;) usleep(10000);
}
