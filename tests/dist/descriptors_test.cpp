// File descriptors go from each rank to each other, and only to them.
#include "dist/descriptors.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/dist/processes.h"

namespace headroom::dist {
namespace {

int memory_of(int rank) {  // memory that holds the rank's number
  const int fd = ::memfd_create("of a rank", MFD_CLOEXEC);
  EXPECT_EQ(::write(fd, &rank, sizeof rank), ssize_t(sizeof rank));
  return fd;
}

TEST(Descriptors, GoFromEachRankToEachOther) {
  for (const int ranks : {1, 2, 5, 14}) {  // 13 descriptors are more than a system's usual queue of ten
    const Address at = fresh_address();
    const auto all = as_processes(ranks, [&](int rank) -> std::string {
      Rendezvous r(coming(rank, ranks, at));
      const Socket mine(memory_of(rank));
      for (int again = 0; again < 2; ++again) {
        const auto theirs = exchange_descriptors(r, mine.fd());
        if (int(theirs.size()) != ranks) return "their number is wrong";
        for (int i = 0; i < ranks; ++i) {
          int number = -1;
          if (i == rank && theirs[std::size_t(i)]) return "one of its own";
          if (i != rank && (::pread(theirs[std::size_t(i)].fd(), &number, sizeof number, 0) != ssize_t(sizeof number) || number != i))
            return fmt::format("what rank {} gave holds {}", i, number);
        }
      }
      r.leave();
      return "right";
    });
    for (const auto& o : all) EXPECT_EQ(o.said, "right") << ranks << " ranks";
  }
}

TEST(Descriptors, WhoHasNoneToGiveEndsItForAllWithAReason) {
  const Address at = fresh_address();
  const auto all = as_processes(3, [&](int rank) -> std::string {
    Rendezvous r(coming(rank, 3, at));
    const Socket mine(rank == 1 ? -1 : memory_of(rank));
    std::string said;
    try {
      exchange_descriptors(r, mine.fd());
    } catch (const Error& e) { said = e.what(); }
    r.leave();
    return said;
  });
  EXPECT_NE(all[0].said.find("rank 1"), std::string::npos) << all[0].said;
  for (const auto& o : all) EXPECT_EQ(o.said, all[0].said);
}

}  // namespace
}  // namespace headroom::dist
