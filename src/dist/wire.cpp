#include "dist/wire.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <memory>

#include "base/error.h"
#include "base/text.h"

namespace headroom::dist {

void Socket::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

std::string Address::text() const {
  if (local) return "local:" + host;
  const bool six = host.find(':') != std::string::npos;
  return fmt::format("{}{}{}:{}", six ? "[" : "", host, six ? "]" : "", port);
}

Address address_named(std::string_view text, std::string_view who) {
  if (text.starts_with("local:")) {
    check(text.size() > 6 && text.size() < 80, Code::bad_argument, "{}: '{}' names nothing; local: is followed by a word", who, text);
    return {std::string(text.substr(6)), 0, true};
  }
  const auto colon = text.rfind(':');
  check(colon != std::string_view::npos && colon > 0, Code::bad_argument, "{}: '{}' is no host:port, as in node7:29400", who, text);
  std::string_view host = text.substr(0, colon);
  check(host.starts_with("[") == host.ends_with("]"), Code::bad_argument, "{}: '{}' is no host:port, as in [::1]:29400", who, text);
  if (host.starts_with("[") && host.ends_with("]")) host = host.substr(1, host.size() - 2);
  return {std::string(host), int(parse_integer(text.substr(colon + 1), fmt::format("{}: the port", who), {1, 65535}))};
}

namespace {

struct Local {
  sockaddr_un at{};
  socklen_t size;
};
Local local_address(const std::string& name) {
  Local l;
  l.at.sun_family = AF_UNIX;
  const std::string full = fmt::format("headroom/{}/{}", getuid(), name);  // after a 0: in no file system
  const std::size_t n = std::min(full.size(), sizeof l.at.sun_path - 1);
  std::memcpy(l.at.sun_path + 1, full.data(), n);
  l.size = socklen_t(offsetof(sockaddr_un, sun_path) + 1 + n);
  return l;
}

using Found = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;
Found look_up(const Address& a, int port) {
  addrinfo want{};
  want.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int e = getaddrinfo(a.host.c_str(), std::to_string(port).c_str(), &want, &found);
  check(e == 0, Code::io, "rendezvous {}: the host '{}' cannot be found ({})", a.text(), a.host, gai_strerror(e));
  return {found, freeaddrinfo};
}

void answer_soon(int fd) {
  const int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);  // refused by a local socket, which needs none
}

bool send_all(int fd, const void* data, std::size_t bytes) {
  for (const char* at = static_cast<const char*>(data); bytes > 0;) {
    const auto n = ::send(fd, at, bytes, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += n, bytes -= std::size_t(n);
  }
  return true;
}

struct Head {
  Frame::Kind kind;
  std::int32_t rank;
  std::uint64_t round, bytes;
};
constexpr std::uint64_t most_text = 64u << 20, most_greeting = 256;

}  // namespace

Socket listen_at(const Address& a, int most) {
  if (a.local) {
    Socket s(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const Local l = local_address(a.host);
    if (s && ::bind(s.fd(), reinterpret_cast<const sockaddr*>(&l.at), l.size) == 0 && ::listen(s.fd(), most) == 0) return s;
    throw Error(Code::io,
                fmt::format("rendezvous {}: {}", a.text(), errno == EADDRINUSE ? "another rank 0 is there already" : std::strerror(errno)));
  }
  int last = EADDRINUSE;
  for (int k = 0; k < a.ports; ++k) {
    const Found found = look_up(a, a.port + k);
    for (const addrinfo* i = found.get(); i; i = i->ai_next) {
      Socket s(::socket(i->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      const int one = 1;
      setsockopt(s.fd(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
      if (s && ::bind(s.fd(), i->ai_addr, i->ai_addrlen) == 0 && ::listen(s.fd(), most) == 0) return s;
      last = errno;
      if (last == EADDRINUSE) break;  // another of the host's addresses would not be the one that the ranks try first
    }
  }
  if (last == EADDRNOTAVAIL)
    throw Error(Code::io, fmt::format("rendezvous {}: '{}' is another machine; rank 0 must run there", a.text(), a.host));
  throw Error(Code::io,
              fmt::format("rendezvous {}: {}", a.text(), last == EADDRINUSE ? "the port is taken; choose another" : std::strerror(last)));
}

Socket accept_from(const Socket& listener) {
  Socket s(::accept4(listener.fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (s) answer_soon(s.fd());
  return s;
}

Socket connect_to(const Address& a, int port_after_first) {
  if (a.local) {
    Socket s(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const Local l = local_address(a.host);
    return s && ::connect(s.fd(), reinterpret_cast<const sockaddr*>(&l.at), l.size) == 0 ? std::move(s) : Socket();
  }
  const Found found = look_up(a, a.port + port_after_first);
  for (const addrinfo* i = found.get(); i; i = i->ai_next) {
    Socket s(::socket(i->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!s) continue;
    if (::connect(s.fd(), i->ai_addr, i->ai_addrlen) != 0) {  // a machine that drops packets is not waited for by the minute
      if (errno != EINPROGRESS) continue;
      pollfd p{s.fd(), POLLOUT, 0};
      int e = 0;
      socklen_t n = sizeof e;
      if (::poll(&p, 1, 2000) != 1 || getsockopt(s.fd(), SOL_SOCKET, SO_ERROR, &e, &n) != 0 || e != 0) continue;
    }
    ::fcntl(s.fd(), F_SETFL, ::fcntl(s.fd(), F_GETFL) & ~O_NONBLOCK);
    answer_soon(s.fd());
    return s;
  }
  return {};
}

namespace {

std::string bytes_of(const Frame& f) {
  const Head head{f.kind, f.rank, f.round, f.text.size()};
  std::string all(sizeof head + f.text.size(), '\0');
  std::memcpy(all.data(), &head, sizeof head);
  std::memcpy(all.data() + sizeof head, f.text.data(), f.text.size());
  return all;
}

bool would_wait() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

bool send_frame(const Socket& s, const Frame& f) {
  const std::string all = bytes_of(f);
  return send_all(s.fd(), all.data(), all.size());
}

Got Inbox::take(const Socket& s, Frame& f, From from) {
  Head head{};
  while (true) {
    std::size_t wanted = sizeof head;
    if (bytes_.size() >= sizeof head) {
      std::memcpy(&head, bytes_.data(), sizeof head);
      if (head.kind < Frame::Kind::hello || head.kind > Frame::Kind::refused) return Got::gone;  // not one of us
      if (head.bytes > (from == From::stranger ? most_greeting : most_text)) return Got::gone;
      wanted += head.bytes;
      if (bytes_.size() == wanted) break;
    }
    char piece[1 << 16];
    const auto n = ::recv(s.fd(), piece, std::min(wanted - bytes_.size(), sizeof piece), MSG_DONTWAIT);
    if (n < 0 && would_wait()) return Got::nothing;
    if (n <= 0) return Got::gone;
    bytes_.append(piece, std::size_t(n));
  }
  f = {head.kind, head.rank, head.round, bytes_.substr(sizeof head)};
  bytes_.clear();
  return Got::frame;
}

void Outbox::put(const Frame& f) {
  bytes_.erase(0, std::exchange(sent_, 0));
  bytes_ += bytes_of(f);
}

bool Outbox::send(const Socket& s) {
  while (!empty()) {
    const auto n = ::send(s.fd(), bytes_.data() + sent_, bytes_.size() - sent_, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && would_wait()) return true;
    if (n <= 0) return false;
    sent_ += std::size_t(n);
  }
  bytes_.clear();
  sent_ = 0;
  return true;
}

Got receive_frame(const Socket& s, Inbox& inbox, Frame& f, std::chrono::steady_clock::time_point deadline, From from) {
  while (true) {
    if (const Got got = inbox.take(s, f, from); got != Got::nothing) return got;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    if (left <= 0) return Got::nothing;
    pollfd p{s.fd(), POLLIN, 0};
    if (::poll(&p, 1, int(std::min<std::int64_t>(left, 1 << 20))) < 0 && errno != EINTR) return Got::gone;
  }
}

std::string packed(const std::vector<std::string>& parts) {
  std::string out;
  for (const auto& p : parts) {
    const std::uint64_t n = p.size();
    out.append(reinterpret_cast<const char*>(&n), sizeof n).append(p);
  }
  return out;
}

std::vector<std::string> unpacked(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t at = 0; at < text.size();) {
    std::uint64_t n = 0;
    check(text.size() - at >= sizeof n, Code::io, "rendezvous: a message was cut short");
    std::memcpy(&n, text.data() + at, sizeof n);
    at += sizeof n;
    check(text.size() - at >= n, Code::io, "rendezvous: a message was cut short");
    out.push_back(text.substr(at, n));
    at += n;
  }
  return out;
}

std::string host_id() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return fmt::format("{} {}", name, boot);
}

}  // namespace headroom::dist
