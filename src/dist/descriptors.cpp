#include "dist/descriptors.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace headroom::dist {

namespace {

constexpr int patience_ms = 3000;

struct Box {  // a datagram socket; the system makes its name, which is in no file system
  Socket socket;
  std::string name;
};

Box open_box() {
  Box box{Socket(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)), ""};
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  const int yes = 1;
  const timeval patience{patience_ms / 1000, 0};
  if (!box.socket || ::setsockopt(box.socket.fd(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) != 0 ||
      ::setsockopt(box.socket.fd(), SOL_SOCKET, SO_PASSCRED, &yes, sizeof yes) != 0 ||
      ::bind(box.socket.fd(), reinterpret_cast<const sockaddr*>(&at), sizeof at.sun_family) != 0)
    return box;
  socklen_t size = sizeof at;
  if (::getsockname(box.socket.fd(), reinterpret_cast<sockaddr*>(&at), &size) == 0)
    box.name.assign(reinterpret_cast<const char*>(&at), size);
  return box;
}

union Control {  // room for one descriptor and its sender
  char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(ucred))];
  cmsghdr aligned;
};

bool send_to(const std::string& name, const Socket& from, std::int32_t rank, int descriptor) {
  iovec words{&rank, sizeof rank};
  Control control{};
  msghdr message{};
  message.msg_name = const_cast<char*>(name.data()), message.msg_namelen = socklen_t(name.size());
  message.msg_iov = &words, message.msg_iovlen = 1;
  message.msg_control = control.bytes, message.msg_controllen = CMSG_SPACE(sizeof descriptor);
  cmsghdr* const c = CMSG_FIRSTHDR(&message);
  c->cmsg_level = SOL_SOCKET, c->cmsg_type = SCM_RIGHTS, c->cmsg_len = CMSG_LEN(sizeof descriptor);
  std::memcpy(CMSG_DATA(c), &descriptor, sizeof descriptor);
  return ::sendmsg(from.fd(), &message, 0) == ssize_t(sizeof rank);
}

struct Given {
  std::int32_t rank = -1;  // −1: not of an allowed process
  Socket descriptor;
};

Given receive_from(const Socket& box) {
  Given given;
  iovec words{&given.rank, sizeof given.rank};
  Control control{};
  msghdr message{};
  message.msg_iov = &words, message.msg_iovlen = 1;
  message.msg_control = control.bytes, message.msg_controllen = sizeof control.bytes;
  const ssize_t got = ::recvmsg(box.fd(), &message, MSG_CMSG_CLOEXEC);
  bool ours = false;
  for (cmsghdr* c = got < 0 ? nullptr : CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c)) {
    if (c->cmsg_level != SOL_SOCKET) continue;
    if (c->cmsg_type == SCM_RIGHTS) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c), sizeof fd);
      given.descriptor = Socket(fd);
    } else if (c->cmsg_type == SCM_CREDENTIALS) {
      ucred who{};
      std::memcpy(&who, CMSG_DATA(c), sizeof who);
      ours = who.uid == ::geteuid();
    }
  }
  if (got != ssize_t(sizeof given.rank) || !ours || !given.descriptor) given.rank = -1;
  return given;
}

}  // namespace

std::vector<Socket> exchange_descriptors(Rendezvous& rendezvous, int mine) {
  const int ranks = rendezvous.ranks(), rank = rendezvous.rank();
  const Box box = open_box();
  const auto names = rendezvous.collect(box.name, "where they take descriptors");
  std::vector<Socket> theirs(static_cast<std::size_t>(ranks));
  std::string why;
  const auto take_from = [&](int from) {
    while (!theirs[std::size_t(from)]) {
      pollfd waiting{box.socket.fd(), POLLIN, 0};
      if (::poll(&waiting, 1, patience_ms) != 1) return false;
      Given given = receive_from(box.socket);  // from the first that sent
      if (given.rank >= 0 && given.rank < ranks && given.rank != rank) theirs[std::size_t(given.rank)] = std::move(given.descriptor);
    }
    return true;
  };
  for (int away = 1; away < ranks && why.empty(); ++away) {  // one to give to and one to take from at a time: a box holds few
    const int to = (rank + away) % ranks, from = (rank + ranks - away) % ranks;
    if (names[std::size_t(to)].empty() || !send_to(names[std::size_t(to)], box.socket, rank, mine))
      why = fmt::format("rank {} cannot give rank {} a descriptor: {}", rank, to, std::strerror(errno));
    else if (!take_from(from))
      why = fmt::format("rank {} was given no descriptor by rank {}", rank, from);
  }
  for (const auto& w : rendezvous.collect(why, "whether they have all descriptors")) check(w.empty(), Code::io, "{}", w);
  return theirs;
}

}  // namespace headroom::dist
