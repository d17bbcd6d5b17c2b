// Host memory that the ranks of one machine share. It has no name in any file system, so none is left behind however a process ends.
#pragma once
#include <cstddef>

#include "dist/rendezvous.h"

namespace headroom::dist {

class Segment {
 public:
  // Makes a segment of zeros. Every rank calls it, for as many bytes; an Error on all if one cannot have it, or if they are on several machines.
  Segment(Rendezvous&, std::size_t bytes);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;
  char* at(std::size_t offset) const { return static_cast<char*>(data_) + offset; }
  std::size_t bytes() const { return bytes_; }

 private:
  void* data_;
  std::size_t bytes_;
};

}  // namespace headroom::dist
