// The wire of a rendezvous: framed messages over a stream socket. Addresses are "host:port" (TCP) or "local:name" (this machine only; the
// name is in no file system and goes with its last owner).
#pragma once
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace headroom::dist {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  ~Socket() { close(); }
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int fd() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void close();

 private:
  int fd_ = -1;
};

struct Address {
  std::string host;  // or the name, where local
  int port = 0;
  bool local = false;
  int ports = 1;  // TCP: the first of so many from `port` on that is free; those who come try all of them
  std::string text() const;
};
Address address_named(std::string_view text, std::string_view who);  // "host:port", "[::1]:port", "local:name"; an Error says what is wrong

Socket listen_at(const Address&, int most);               // an Error says why not: a port that is taken, a host that is another machine
Socket accept_from(const Socket& listener);               // an empty one where nobody is there after all
Socket connect_to(const Address&, int port_after_first);  // an empty one where nobody listens; an Error for a host that does not exist

struct Frame {
  enum class Kind : std::uint32_t { hello = 0x4852444d, welcome, bring, brought, end, ended, leave, beat };
  Kind kind = Kind::beat;
  std::int32_t rank = 0;
  std::uint64_t round = 0;
  std::string text;
};
bool send_frame(const Socket&, const Frame&);  // false where the other side is gone
enum class Got : std::uint8_t { frame, nothing, gone };
// patience: for the first byte; the rest must follow soon. Of a stranger a short frame is taken, and it must follow at once.
enum class From : std::uint8_t { rank, stranger };
Got receive_frame(const Socket&, Frame&, std::chrono::milliseconds patience, From from = From::rank);

std::string packed(const std::vector<std::string>&);
std::vector<std::string> unpacked(const std::string&);

std::string host_id();  // this boot of this machine

}  // namespace headroom::dist
