#include "dist/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"
#include "dist/wire.h"

namespace headroom::dist {

// Rank 0 makes the memory; the others open it through /proc, where it has a name only as long as rank 0 lives.
Segment::Segment(Rendezvous& rendezvous, std::size_t bytes) : bytes_(bytes) {
  check(rendezvous.one_machine(), Code::unsupported, "shared memory joins ranks of one machine, and these are on several; take MPI");
  const int rank = rendezvous.rank();
  int fd = -1;
  std::string mine;
  if (rank == 0) {
    fd = ::memfd_create("headroom ranks", MFD_CLOEXEC);
    mine = fd >= 0 && ::ftruncate(fd, off_t(bytes)) == 0 ? fmt::format("/proc/{}/fd/{}", getpid(), fd) : std::string();
  }
  const Socket closed_at_the_end(fd);
  const std::string path = rendezvous.collect(mine, "their shared memory")[0];
  check(!path.empty(), Code::out_of_memory, "shared memory: the system gives rank 0 no {} bytes", bytes);
  const Socket theirs(rank == 0 ? -1 : ::open(path.c_str(), O_RDWR | O_CLOEXEC));
  const int from = rank == 0 ? fd : theirs.fd();
  const std::string why = from >= 0 ? "" : fmt::format("rank {} cannot open rank 0's memory at {}: {}", rank, path, std::strerror(errno));
  for (const auto& w : rendezvous.collect(why, "whether they have it")) check(w.empty(), Code::io, "shared memory: {}", w);
  data_ = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, from, 0);
  check(data_ != MAP_FAILED, Code::out_of_memory, "shared memory: {} bytes for the ranks' windows cannot be had: {}", bytes,
        std::strerror(errno));
}

Segment::~Segment() { ::munmap(data_, bytes_); }

}  // namespace headroom::dist
