// A file that should be a store of results: read, or reported in one line, and never changed by being read.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "store/results.h"

namespace {

struct Scratch {  // one file of this process, gone at its end
  std::filesystem::path folder = std::filesystem::is_directory("/dev/shm") ? "/dev/shm" : std::filesystem::temp_directory_path();
  std::string path = (folder / ("headroom_store_fuzz_" + std::to_string(getpid()))).string();
  ~Scratch() { std::filesystem::remove(path); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace headroom;
  static const Scratch scratch;
  const std::vector<char> before(data, data + size);
  std::ofstream(scratch.path, std::ios::binary).write(before.data(), std::streamsize(size));
  try {
    const Results results(scratch.path, Results::Access::read);
    for (const auto& run : results.runs()) results.rows(run.id);
  } catch (const Error& e) {
    if (!*e.what()) std::abort();
  }
  std::ifstream in(scratch.path, std::ios::binary);
  const std::vector<char> after{std::istreambuf_iterator<char>(in), {}};
  if (after != before) std::abort();
  return 0;
}
