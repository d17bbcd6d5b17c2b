#include "store/claim.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

namespace headroom {

namespace {

// A local socket whose name is in no file system: it goes with its process, even a killed one. The name is the store's place on
// disk, so that links and relative paths mean the same store.
struct ClaimPlace {
  sockaddr_un at{};
  socklen_t size = 0;
};
ClaimPlace place_of(const std::string& file, std::int64_t run) {
  struct stat s {};
  if (stat(file.c_str(), &s) != 0) return {};
  const std::string name = fmt::format("headroom/run/{}/{}/{}", s.st_dev, s.st_ino, run);
  ClaimPlace p;
  p.at.sun_family = AF_UNIX;
  std::memcpy(p.at.sun_path + 1, name.data(), name.size());
  p.size = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return p;
}

}  // namespace

std::optional<Claim> Claim::of(const std::string& file, std::int64_t run) {
  const ClaimPlace place = place_of(file, run);
  Descriptor held(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!held || place.size == 0) return Claim(Descriptor());  // where the system has no such names, nothing is known of other processes
  if (bind(held.get(), reinterpret_cast<const sockaddr*>(&place.at), place.size) == 0) {
    (void)listen(held.get(), 4096);  // so that others may ask for this process's number
    return Claim(std::move(held));
  }
  if (errno == EADDRINUSE) return std::nullopt;
  return Claim(Descriptor());
}

std::string Claim::owner(const std::string& file, std::int64_t run) {
  const ClaimPlace place = place_of(file, run);
  const Descriptor asking(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  ucred who{};
  socklen_t size = sizeof who;
  const bool known = asking && connect(asking.get(), reinterpret_cast<const sockaddr*>(&place.at), place.size) == 0 &&
                     getsockopt(asking.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.pid > 0;
  return known ? fmt::format("process {}", who.pid) : "another process";
}

}  // namespace headroom
