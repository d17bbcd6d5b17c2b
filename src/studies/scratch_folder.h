// A folder for what a started program's processes write. It is gone at the end, however that comes: a guardian (a small shell) waits for the
// end of this process, so even a process that is killed hard leaves nothing. What a killed guardian leaves, the next folder takes away.
#pragma once
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <string>

#include "base/file.h"

namespace headroom::studies {

class ScratchFolder {
 public:
  // Processes whose environment names the folder, when this process was killed: they end with the folder, or they go on without it.
  enum class Orphans : std::uint8_t { end, go_on };

  ScratchFolder(const char* who, const std::string& name, Orphans);  // `name`: the beginning of its name
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  Descriptor lock_;       // a file's in the folder: a process that gets it knows that the owner is gone
  Descriptor life_line_;  // the guardian reads its other end
  pid_t guardian_ = 0;
};

}  // namespace headroom::studies
