// What an act throws in a child process that is nobody's user: root may write everything.
#pragma once
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <functional>
#include <string>

#include "base/error.h"

namespace headroom {

inline std::string refused_without_rights(const std::function<void()>& act) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return "no pipe";
  const pid_t child = fork();
  if (child == 0) {
    constexpr int nobody = 65534;
    std::string said = "nothing";
    if (geteuid() == 0 && (setresgid(nobody, nobody, nobody) != 0 || setresuid(nobody, nobody, nobody) != 0)) said = "root stayed root";
    errno = EINVAL;  // of some earlier call
    try {
      act();
    } catch (const Error& e) { said = e.what(); }
    const auto written = write(ends[1], said.data(), said.size());
    _exit(written == ssize_t(said.size()) ? 0 : 1);
  }
  close(ends[1]);
  std::string said(4096, ' ');
  const auto n = read(ends[0], said.data(), said.size());
  close(ends[0]);
  waitpid(child, nullptr, 0);
  return said.substr(0, n > 0 ? std::size_t(n) : 0);
}

}  // namespace headroom
