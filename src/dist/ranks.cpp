#include "dist/ranks.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/text.h"

extern char** environ;

namespace headroom::dist {

namespace {

using Variable = std::function<const char*(const char*)>;
constexpr int ports_to_try = 16;

std::optional<int> number(const Variable& variable, const char* name) {
  const char* text = variable(name);
  if (!text || !*text) return {};
  return int(parse_integer(text, name, {0, 1 << 20}));
}

std::string word(const Variable& variable, const char* name) {
  const char* text = variable(name);
  return text ? text : "";
}

Address local(const std::string& name) { return {name, 0, true}; }

// torchrun's agent keeps a store of its own at MASTER_PORT; rank 0 takes the first free port after it, the others try the same ones. Ranks
// of one machine need no port.
std::optional<Address> master(const Variable& variable) {
  const auto port = number(variable, "MASTER_PORT");
  const std::string host = word(variable, "MASTER_ADDR");
  if (host.empty() || !port) return {};
  check(*port >= 1 && *port <= 65535, Code::bad_argument, "MASTER_PORT: '{}' is not a whole number from 1 to 65535", *port);
  const auto here = number(variable, "LOCAL_WORLD_SIZE"), all = number(variable, "WORLD_SIZE");
  const std::string run = word(variable, "TORCHELASTIC_RUN_ID");
  if (!run.empty() && here && here == all)
    return local(fmt::format("torchrun-{}-{}-{}", *port, word(variable, "TORCHELASTIC_RESTART_COUNT"), run));
  const bool everywhere = host == "0.0.0.0" || host == "::" || host == "*";
  check(!everywhere || !here || here == all, Code::bad_argument,
        "MASTER_ADDR: '{}' is no machine that ranks elsewhere can find; set it to the name of rank 0's machine", host);
  const int skip = word(variable, "TORCHELASTIC_USE_AGENT_STORE") == "True";
  return Address{everywhere ? "localhost" : host, *port + skip, false, ports_to_try};  // the ranks are here: it listens here only
}

std::string job_of_torchrun(const Variable& variable) {
  return joined({word(variable, "TORCHELASTIC_RUN_ID"), word(variable, "TORCHELASTIC_RESTART_COUNT")}, " ");
}
std::string job_of_slurm(const Variable& variable) {
  return fmt::format("SLURM {}.{}", word(variable, "SLURM_JOB_ID"), word(variable, "SLURM_STEP_ID"));
}

struct Launched {
  const char* launcher;
  std::optional<int> rank, ranks;
  std::string job;
  std::function<std::optional<Address>()> address;
  bool by_mpi = false;  // MPI itself can say where rank 0 is
};

std::optional<Address> of_open_mpi(const Variable& variable) {
  const std::string job = word(variable, "PMIX_NAMESPACE");
  if (!job.empty() && number(variable, "OMPI_COMM_WORLD_LOCAL_SIZE") == number(variable, "OMPI_COMM_WORLD_SIZE"))
    return local("ompi-" + job);
  return {};
}

std::optional<Address> of_pmi(const Variable& variable) {  // the local ranks of MPICH have one parent
  if (number(variable, "MPI_LOCALNRANKS") == number(variable, "PMI_SIZE")) return local(fmt::format("pmi-{}", getppid()));
  return {};
}

std::optional<Address> of_slurm(const Variable& variable) {
  const std::string job = word(variable, "SLURM_JOB_ID"), step = word(variable, "SLURM_STEP_ID");
  if (number(variable, "SLURM_STEP_NUM_NODES") == 1) return local(fmt::format("slurm-{}-{}", job, step));
  std::string nodes = word(variable, "SLURM_STEP_NODELIST");
  if (nodes.empty()) nodes = word(variable, "SLURM_JOB_NODELIST");
  if (nodes.empty() || job.empty()) return {};
  return Address{first_host(nodes), 20000 + int(std::strtoll(job.c_str(), nullptr, 10) % 20000), false, ports_to_try};
}

Seat seat_of(const Launched& l, const RanksAsked& asked, const Variable& variable) {
  check(asked.ranks == 0 || asked.ranks == *l.ranks, Code::bad_argument, "{} {}: {} started {} ranks; leave {} out, or start {}",
        asked.option, asked.ranks, l.launcher, *l.ranks, asked.option, asked.ranks);
  check(*l.rank < *l.ranks, Code::bad_argument, "{} says that this is rank {} of {}; ranks are counted from 0", l.launcher, *l.rank,
        *l.ranks);
  Seat seat{*l.rank, *l.ranks, l.launcher, l.job};
  if (!asked.rendezvous.empty()) {
    seat.address = address_named(asked.rendezvous, "--rendezvous");
  } else {
    auto found = l.address();
    if (!found) found = master(variable);
    check(found || l.by_mpi, Code::bad_argument, "{} started {} ranks and does not say where they meet: {}", l.launcher, *l.ranks,
          how_to_meet);
    if (found) seat.address = *found;
  }
  return seat;
}

}  // namespace

std::string first_host(const std::string& list) {
  const auto bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const auto end = list.find_first_of("-,]", bracket);
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1);
}

Seat find_seat(const RanksAsked& asked, const Variable& variable) {
  if (asked.rank >= 0) {
    check(asked.ranks > 0, Code::bad_argument, "--rank {}: of how many? Give --ranks too", asked.rank);
    check(asked.rank < asked.ranks, Code::bad_argument, "--rank {}: there are {} ranks, counted from 0", asked.rank, asked.ranks);
    check(asked.ranks == 1 || !asked.rendezvous.empty(), Code::bad_argument,
          "--rank {}: where do the ranks meet? Give --rendezvous HOST:PORT, a free port on rank 0's machine", asked.rank);
    Seat seat{asked.rank, asked.ranks, "--rank"};
    if (!asked.rendezvous.empty()) seat.address = address_named(asked.rendezvous, "--rendezvous");
    return seat;
  }
  const auto own = number(variable, "HEADROOM_RANK"), own_ranks = number(variable, "HEADROOM_RANKS"), fd = number(variable, "HEADROOM_FD");
  if (own && own_ranks && fd) return {*own, *own_ranks, "rank 0", "", {}, false, *fd};
  auto slurm_ranks = number(variable, "SLURM_STEP_NUM_TASKS");  // a batch script has SLURM_PROCID and SLURM_NTASKS too, and is one process
  if (!slurm_ranks && !word(variable, "SLURM_STEP_ID").empty()) slurm_ranks = number(variable, "SLURM_NTASKS");
  const Launched launchers[] = {
      {"torchrun", number(variable, "RANK"), number(variable, "WORLD_SIZE"), job_of_torchrun(variable), [&] { return master(variable); },
       false},
      {"Open MPI", number(variable, "OMPI_COMM_WORLD_RANK"), number(variable, "OMPI_COMM_WORLD_SIZE"), word(variable, "PMIX_NAMESPACE"),
       [&] { return of_open_mpi(variable); }, true},
      {"PMI", number(variable, "PMI_RANK"), number(variable, "PMI_SIZE"), "", [&] { return of_pmi(variable); }, true},
      {"SLURM", number(variable, "SLURM_PROCID"), slurm_ranks, job_of_slurm(variable), [&] { return of_slurm(variable); }, false},
  };
  for (const Launched& l : launchers)
    if (l.rank && l.ranks && *l.ranks > 1) return seat_of(l, asked, variable);
  check(asked.rendezvous.empty(), Code::bad_argument, "--rendezvous {}: which rank is this? Give --rank too", asked.rendezvous);
  Seat seat;
  seat.ranks = std::max(1, asked.ranks);
  seat.start_others = seat.ranks > 1;
  return seat;
}

Seat find_seat(const RanksAsked& asked) {
  return find_seat(asked, [](const char* name) { return std::getenv(name); });
}

namespace {

std::vector<std::string> words_of_this_process() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  std::vector<std::string> words;
  for (std::size_t at = 0; at < all.size();) {
    words.emplace_back(all.c_str() + at);
    at += words.back().size() + 1;
  }
  return words;
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> out;
  for (auto& w : words) out.push_back(w.data());
  out.push_back(nullptr);
  return out;
}

struct FileActions {
  posix_spawn_file_actions_t raw;
  FileActions() { posix_spawn_file_actions_init(&raw); }
  ~FileActions() { posix_spawn_file_actions_destroy(&raw); }
};

}  // namespace

Others::Others(int ranks) {
  std::vector<std::string> words = words_of_this_process();
  const auto argv = pointers(words);
  for (int r = 1; r < ranks; ++r) {
    int pair[2];
    const auto given = [&](bool is) {
      check(is, Code::io, "rank {} cannot be started: {}; take fewer ranks, or raise ulimit -n", r, std::strerror(errno));
    };
    given(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) == 0);
    connections_.emplace_back(pair[0]);
    const Socket theirs(pair[1]);
    const Socket kept(::fcntl(theirs.fd(), F_DUPFD, 3));  // not closed when the program begins again
    given(kept.fd() >= 0);
    std::vector<std::string> variables;
    for (char** v = environ; *v; ++v) variables.emplace_back(*v);
    variables.push_back(fmt::format("HEADROOM_RANK={}", r));
    variables.push_back(fmt::format("HEADROOM_RANKS={}", ranks));
    variables.push_back(fmt::format("HEADROOM_FD={}", kept.fd()));
    const auto env = pointers(variables);
    FileActions actions;
    posix_spawn_file_actions_addopen(&actions.raw, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions.raw, 1, "/dev/null", O_WRONLY, 0);
    pid_t pid = 0;
    const int e = posix_spawn(&pid, "/proc/self/exe", &actions.raw, nullptr, argv.data(), env.data());
    check(e == 0, Code::io, "rank {} cannot be started: {}", r, std::strerror(e));
    pids_.push_back(pid), fates_.emplace_back();
  }
}

bool Others::reap(std::size_t i) {
  if (pids_[i] == 0) return true;
  int status = 0;
  const pid_t got = ::waitpid(pids_[i], &status, WNOHANG);
  if (got == 0) return false;
  if (got < 0)
    fates_[i] = "its process is gone";
  else if (WIFSIGNALED(status))
    fates_[i] = fmt::format("killed by signal {} ({})", WTERMSIG(status), strsignal(WTERMSIG(status)));
  else
    fates_[i] = fmt::format("its process left with code {}", WEXITSTATUS(status));
  pids_[i] = 0;
  return true;
}

std::string Others::fate(int rank) {
  const auto i = std::size_t(rank - 1);
  for (int k = 0; k < 100 && !reap(i); ++k) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return fates_[i].empty() ? "it closed its connection" : fates_[i];
}

Others::~Others() {
  connections_.clear();
  const auto all_within = [&](std::chrono::milliseconds limit) {
    for (const auto until = std::chrono::steady_clock::now() + limit; std::chrono::steady_clock::now() < until;) {
      bool all = true;
      for (std::size_t i = 0; i < pids_.size(); ++i) all &= reap(i);
      if (all) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  };
  if (all_within(std::chrono::seconds(9))) return;
  for (const pid_t pid : pids_)
    if (pid > 0) ::kill(pid, SIGKILL);
  all_within(std::chrono::seconds(1));
}

}  // namespace headroom::dist
