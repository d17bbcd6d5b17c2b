#include "cli/ranks_options.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/threads.h"
#include "cli/described_options.h"
#include "dist/quiet.h"
#include "gpu/device.h"

namespace headroom::cli {

dist::RanksAsked RanksOptions::asked() const {
  check(gpus == 0 || ranks == 0 || gpus == ranks, Code::bad_argument, "--gpus {} and --ranks {}: a GPU has one rank; give one of them",
        gpus, ranks);
  check(gpus == 0 || std::filesystem::exists("/dev/nvidiactl") || cuda_device_count() > 0, Code::unsupported,
        "--gpus {}: there is no GPU here; --device cpu --ranks {} takes processes on the CPU", gpus, gpus);
  return {int(rank), int(std::max(gpus, ranks)), rendezvous, gpus > 0 ? "--gpus" : "--ranks"};
}

void add_ranks(CLI::App& app, RanksOptions& r) {
  const auto add = [&](std::int64_t& member, const Description& d) { add_value(app, member, d)->default_str(""); };
  add(r.gpus, {.name = "gpus", .about = "GPUs of this machine, a process each, started from here", .allowed = {1, 4096}});
  add(r.ranks,
      {.name = "ranks", .about = "Processes on the CPU, started from here; with --rank: the number of ranks in all", .allowed = {1, 4096}});
  add(r.rank,
      {.name = "rank", .about = "This process's rank, when no launcher sets it (torchrun, mpirun and srun do)", .allowed = {0, 4095}});
  app.add_option("--rendezvous", r.rendezvous, "Where ranks started by hand meet: a free port on rank 0's machine")->type_name("HOST:PORT");
}

void check_for_ranks(const CLI::App& app, const dist::Seat& seat) {
  for (const char* option : {"--shard", "--split-tokens"})
    check(seat.ranks > 1 || app.count(option) == 0, Code::bad_argument, "{}: there is one rank; give --gpus or --ranks", option);
}

namespace {

// One way to write a value: 0.10 and 1e-1 are the same number.
std::string as_number(const std::string& word) {
  char* end = nullptr;
  const double x = std::strtod(word.c_str(), &end);
  return !word.empty() && *end == '\0' ? fmt::format("{}", x) : word;
}

// What this rank goes by: what was given, and the default of what was not.
dist::Group::Settings settings_of(const CLI::App& app) {
  static const std::set<std::string> own = {"--rank", "--ranks", "--gpus",   "--rendezvous", "--counts", "--device",
                                            "--out",  "--db",    "--format", "--trace",      "--help"};
  dist::Group::Settings s;
  for (const CLI::App* a = &app; a; a = a->get_parent())
    for (const auto* o : a->get_options()) {
      if (own.contains(o->get_name())) continue;
      std::vector<std::string> words;
      for (const std::string& given : o->count() > 0 ? o->results() : std::vector{o->get_default_str()})
        for (const std::string& word : CLI::detail::split(given, ',')) words.push_back(as_number(word));
      s.emplace_back(o->get_name(), joined(words, ","));
    }
  return s;
}

std::string whole_name(const CLI::App& app) {  // a topic has its command before it: "headroom profile step"
  return app.get_parent() ? fmt::format("{} {}", app.get_parent()->get_name(), app.get_name()) : app.get_name();
}

}  // namespace

int as_ranks(const dist::Seat& seat, const CLI::App& app, Common& common, const std::function<int(dist::Group*)>& body) {
  if (seat.ranks == 1) return body(nullptr);
  dist::Group group(seat, settings_of(app));
  common.silent = !group.first();
  const int here = group.rendezvous().local_ranks(), cores = available_cores();
  constexpr int many = 4;  // ranks of a core: a few are for trying things out
  if (group.first() && here > many * cores && (common.device == "cpu" || cuda_device_count() == 0))
    say(fmt::format("{}: {} ranks share {} core{} of this machine; they will wait for each other", whole_name(app), here, cores,
                    cores == 1 ? "" : "s"));
  // A rank that has ended ends this one at its next call. One that makes none, deep in some work of its own, is not waited for.
  auto& meeting = group.rendezvous();
  const auto last_resort =
      meeting.on_end([why = [&meeting] { return std::pair(meeting.speaks(), meeting.ended().value_or("")); }, name = whole_name(app)] {
        std::thread([said = why(), name] {
          std::this_thread::sleep_for(std::chrono::seconds(8));
          if (said.first) say(fmt::format("{}: {}", name, said.second));
          _exit(failed);
        }).detach();
      });
  try {
    const int code = body(&group);
    group.leave();
    return code;
  } catch (const dist::Quiet& e) {
    group.end(e.what());
    throw;
  } catch (const std::exception& e) {
    const auto* own = dynamic_cast<const Error*>(&e);
    const At at = own ? own->at : At(Code::io);
    const auto other = meeting.ended();  // then what failed here failed because of it, or it is what all of them found
    const auto holds = [](std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; };
    const bool own_words = !other || holds(e.what(), *other) || holds(*other, e.what());
    const std::string why = own_words ? e.what() : *other;
    if (group.end(why)) throw Error(at, why);
    throw dist::Quiet(at, why);
  }
}

Device chosen_device(const Common& common, dist::Group* group) {
  if (!group || common.device == "cpu") return chosen_device(common);
  check(common.device.empty() || common.device == "cuda", Code::bad_argument,
        "--device {}: each rank takes a GPU of its own; give --device cuda or cpu, and choose GPUs with CUDA_VISIBLE_DEVICES",
        common.device);
  const int visible = cuda_device_count();
  if (common.device.empty() && visible == 0) return chosen_device(common);
  Common own = common;
  own.device = fmt::format("cuda:{}", group->device_index(visible));
  return chosen_device(own);
}

}  // namespace headroom::cli
