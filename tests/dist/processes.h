// Ranks as processes of a test: forked before anything has a thread, each says in the end what it saw.
#pragma once
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "dist/quiet.h"
#include "dist/rendezvous.h"

namespace headroom::dist {

struct Outcome {
  int code = -1, signal = 0;
  std::string said;    // what the body returned, or "error: …" of what it threw, or "quiet: …"
  double seconds = 0;  // since the first was started
};

inline Address fresh_address() {
  static std::atomic<int> count{0};
  return {fmt::format("test-{}-{}", getpid(), count++), 0, true};
}

inline std::vector<Outcome> as_processes(int ranks, const std::function<std::string(int)>& body) {
  const auto start = std::chrono::steady_clock::now();
  struct Child {
    pid_t pid;
    int from;
  };
  std::vector<Child> children;
  for (int r = 0; r < ranks; ++r) {
    int ends[2];
    if (::pipe(ends) != 0) throw Error(Code::io, "no pipe");
    const pid_t pid = ::fork();
    if (pid == 0) {
      ::close(ends[0]);
      for (const auto& c : children) ::close(c.from);
      std::string said;
      int code = 0;
      try {
        said = body(r);
      } catch (const Quiet& e) { said = std::string("quiet: ") + e.what(), code = 1; } catch (const std::exception& e) {
        said = std::string("error: ") + e.what(), code = 1;
      }
      if (::write(ends[1], said.data(), said.size()) < 0) code = 9;
      ::_exit(code);
    }
    ::close(ends[1]);
    children.push_back({pid, ends[0]});
  }
  std::vector<Outcome> out(children.size());
  std::vector<bool> open(children.size(), true);
  for (std::size_t left = children.size(); left > 0;) {
    std::vector<pollfd> polls;
    for (std::size_t i = 0; i < children.size(); ++i) polls.push_back({open[i] ? children[i].from : -1, POLLIN, 0});
    ::poll(polls.data(), polls.size(), 60000);
    for (std::size_t i = 0; i < children.size(); ++i) {
      if (!polls[i].revents) continue;
      char text[4096];
      const auto n = ::read(children[i].from, text, sizeof text);
      if (n > 0) {
        out[i].said.append(text, std::size_t(n));
        continue;
      }
      ::close(children[i].from);
      open[i] = false, --left;
      out[i].seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      int status = 0;
      ::waitpid(children[i].pid, &status, 0);
      if (WIFEXITED(status)) out[i].code = WEXITSTATUS(status);
      if (WIFSIGNALED(status)) out[i].signal = WTERMSIG(status);
    }
  }
  return out;
}

inline Coming coming(int rank, int ranks, const Address& address) {
  Coming c;
  c.rank = rank, c.ranks = ranks, c.address = address;
  return c;
}

}  // namespace headroom::dist
