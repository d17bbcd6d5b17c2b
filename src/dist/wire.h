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
  std::string host;  // the name, if local
  int port = 0;
  bool local = false;
  int ports = 1;  // TCP: the number of ports from `port` on. Rank 0 takes the first free one, the others try all
  std::string text() const;
};
Address address_named(std::string_view text, std::string_view who);  // "host:port", "[::1]:port", "local:name"; an Error says what is wrong

Socket listen_at(const Address&, int most);               // an Error says why not: a port that is taken, a host that is another machine
Socket accept_from(const Socket& listener);               // empty if no process waits; never blocks
Socket connect_to(const Address&, int port_after_first);  // empty if no process listens; throws an Error if the host does not exist

struct Frame {
  enum class Kind : std::uint32_t { hello = 0x4852444d, welcome, bring, brought, end, ended, leave, beat, refused };
  Kind kind = Kind::beat;
  std::int32_t rank = 0;
  std::uint64_t round = 0;
  std::string text;
};
bool send_frame(const Socket&, const Frame&);  // waits until all is sent; false where the other side is gone

enum class Got : std::uint8_t { frame, nothing, gone };
enum class From : std::uint8_t { rank, stranger };  // a stranger may send a short frame only

// The frame that is arriving on a socket, taken byte by byte as it comes: no call waits for the other side.
class Inbox {
 public:
  Got take(const Socket&, Frame&, From = From::rank);  // nothing: part of the frame has not arrived. Never reads beyond its end

 private:
  std::string bytes_;
};

// What is on its way out, sent as the other side takes it: no call waits for the other side.
class Outbox {
 public:
  void put(const Frame&);
  bool send(const Socket&);  // sends what it can now; false: the other side is gone
  bool empty() const { return bytes_.size() == sent_; }

 private:
  std::string bytes_;
  std::size_t sent_ = 0;
};

// Waits until `deadline` for a whole frame, however slowly its bytes come.
Got receive_frame(const Socket&, Inbox&, Frame&, std::chrono::steady_clock::time_point deadline, From = From::rank);

std::string packed(const std::vector<std::string>&);
std::vector<std::string> unpacked(const std::string&);

std::string host_id();  // this boot of this machine

}  // namespace headroom::dist
