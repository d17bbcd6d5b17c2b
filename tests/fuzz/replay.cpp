// Gives a fuzz target every file of the folders named on the command line, and every beginning of each: a cut file is what a
// parser meets most often. Says what it did; a crash or an unexpected exception fails the test.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

int main(int count, char** folders) {
  long inputs = 0;
  constexpr std::size_t most_beginnings = 512;
  for (int i = 1; i < count; ++i)
    for (const auto& entry : std::filesystem::directory_iterator(folders[i])) {
      std::ifstream in(entry.path(), std::ios::binary);
      const std::vector<char> bytes{std::istreambuf_iterator<char>(in), {}};
      const std::size_t step = bytes.size() / most_beginnings + 1;
      for (std::size_t size = 0;; size = std::min(size + step, bytes.size()), ++inputs) {
        const std::vector<std::uint8_t> cut(bytes.begin(), bytes.begin() + std::ptrdiff_t(size));  // its end is guarded by the sanitizer
        LLVMFuzzerTestOneInput(cut.data(), cut.size());
        if (size == bytes.size()) break;
      }
    }
  std::printf("%ld inputs\n", inputs);
  return inputs > 0 ? 0 : 1;
}
