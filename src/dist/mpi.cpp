#include "dist/mpi.h"

#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/beside_program.h"
#include "base/error.h"
#include "dist/mpi/door.h"

namespace headroom::dist {

namespace {

struct Plugin {
  const headroom_mpi_door* door = nullptr;
  std::string why_not;
};

const Plugin& plugin() {
  static const Plugin opened = [] {
    constexpr const char* name = "libheadroom_mpi.so";
    const char* given = std::getenv("HEADROOM_MPI");
    const std::string file = given ? given : file_beside_program(name);
    if (file.empty())
      return Plugin{nullptr,
                    fmt::format("{} is not beside the program: it is built where MPI is found (Debian and Ubuntu: libopenmpi-dev)", name)};
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_GLOBAL);  // Open MPI opens parts of its own, which look for its symbols
    if (!library) return Plugin{nullptr, dlerror()};
    const auto entry = reinterpret_cast<headroom_mpi_entry>(dlsym(library, "headroom_mpi"));
    if (!entry || entry()->abi != headroom_mpi_abi) return Plugin{nullptr, fmt::format("{} belongs to another version of headroom", file)};
    return Plugin{entry(), ""};
  }();
  return opened;
}

const headroom_mpi_door& door() {
  check(plugin().door, Code::unsupported, "MPI: {}", plugin().why_not);
  return *plugin().door;
}

struct Counted {
  int rank, ranks;
};
bool mpi_started = false;

Counted start_mpi() {
  Counted c{};
  const int error = door().start(&c.rank, &c.ranks);
  mpi_started |= error == 0;
  if (error == 0) return c;
  char text[512];
  door().words(error, text, sizeof text);
  throw Error(Code::io, fmt::format("MPI cannot be started: {}", text));
}

class MpiComm final : public Comm {
 public:
  explicit MpiComm(Rendezvous& r) : Comm(r.rank(), r.ranks()), rendezvous_(r), door_(door()) {
    const Counted c = start_mpi();
    check(c.rank == r.rank() && c.ranks == r.ranks(), Code::unsupported,
          "MPI says that this is rank {} of {}, and it is rank {} of {}: start with mpirun", c.rank, c.ranks, r.rank(), r.ranks());
  }
  Backend backend() const override { return Backend::mpi; }
  std::string route(Call) const override { return "messages"; }
  void check_alive() override { rendezvous_.check_alive(); }
  void end(const std::string& why) noexcept override { rendezvous_.end(why); }

 protected:
  void do_exchange(const Tensor& mine, const Tensor& theirs, void*, Own) override {
    begin(Call::exchange);
    done(door_.exchange(mine.data, theirs.data, mine.bytes() / std::size_t(ranks()), give_up, this));
  }
  void do_gather(const Tensor& part, const Tensor& whole, void*) override {
    begin(Call::gather);
    done(door_.gather(part.data, whole.data, part.bytes(), give_up, this));
  }
  void do_broadcast(const Tensor& whole, int root, void*) override {
    begin(Call::broadcast);
    done(door_.broadcast(whole.data, whole.bytes(), root, give_up, this));
  }
  void do_barrier(void*) override {
    begin(Call::barrier);
    done(door_.barrier(give_up, this));
  }

 private:
  void begin(Call call) { call_ = call, start_ = std::chrono::steady_clock::now(); }
  const char* name() const { return names_of<Call>.of(call_).data(); }
  bool late() const { return std::chrono::steady_clock::now() - start_ > rendezvous_.patience(); }

  static int give_up(void* who) {
    const auto& c = *static_cast<MpiComm*>(who);
    return c.rendezvous_.ended() || c.late();
  }
  void done(int error) const {
    if (error == 0) return;
    rendezvous_.check_alive(name());
    check(error != headroom_mpi_given_up, Code::io, "{}: rank {} waited {:g} s for the others", name(), rank(),
          std::chrono::duration<double>(rendezvous_.patience()).count());
    char text[512];
    door_.words(error, text, sizeof text);
    throw Error(Code::io, fmt::format("MPI, {}: {}", name(), text));
  }

  Rendezvous& rendezvous_;
  const headroom_mpi_door& door_;
  Call call_ = Call::barrier;
  std::chrono::steady_clock::time_point start_;
};

int free_port() {  // a port that is free at this moment
  const Socket s(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t n = sizeof at;
  const bool ok =
      s && ::bind(s.fd(), reinterpret_cast<sockaddr*>(&at), n) == 0 && ::getsockname(s.fd(), reinterpret_cast<sockaddr*>(&at), &n) == 0;
  check(ok, Code::io, "rendezvous: the system gives rank 0 no port");
  return ntohs(at.sin_port);
}

}  // namespace

std::string mpi_why_not() { return plugin().door ? "" : plugin().why_not; }

void finish_mpi() {
  if (std::exchange(mpi_started, false)) door().finish();
}

std::unique_ptr<Comm> make_mpi_comm(Rendezvous& r) { return std::make_unique<MpiComm>(r); }

Address address_by_mpi(int rank, int ranks) {
  const Counted c = start_mpi();
  check(c.rank == rank && c.ranks == ranks, Code::unsupported, "MPI says that this is rank {} of {}, its launcher says rank {} of {}",
        c.rank, c.ranks, rank, ranks);
  char text[300] = {};
  if (rank == 0) {
    char host[256] = {};
    gethostname(host, sizeof host - 1);
    const auto words = fmt::format("{}:{}", host, free_port());
    std::memcpy(text, words.data(), std::min(words.size(), sizeof text - 1));
  }
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  const int error = door().broadcast(
      text, sizeof text, 0, [](void* limit) { return int(std::chrono::steady_clock::now() > *static_cast<const decltype(until)*>(limit)); },
      const_cast<void*>(static_cast<const void*>(&until)));
  check(error == 0, Code::io, "rendezvous: rank 0 did not say through MPI where it is");
  Address a = address_named(text, "MPI");
  a.ports = 16;
  return a;
}

}  // namespace headroom::dist
