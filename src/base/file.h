// The only way to read and write files. A file that is written as a whole goes through AtomicFile: a reader sees the old one or the new
// one, and an unfinished one disappears. A file that is written piece by piece (a trace) opens with open_for_writing. Both refuse databases:
// no output replaces a store of results, by whatever name it is reached.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace headroom {

// The whole of a file or a pipe. `who` begins the line that says what is wrong: "--text". A missing file or a directory is a
// bad_argument; a file that cannot be read is io.
std::string read_file(const std::string& path, std::string_view who, std::uint64_t most_bytes = std::uint64_t(1) << 40);

bool is_regular_file(const std::string& path);                      // false if unknown
std::string why_no_file(const std::string& path);                   // "there is no 'x'", "'x' is a pipe, not a regular file"; "" for a file
bool is_database(const std::string& path);                          // an SQLite database, by its first bytes
bool is_same_file(const std::string& one, const std::string& two);  // under any names, also for files that do not exist yet

// Throws an Error (io) where the disk of a folder has no room for so many bytes; of_what: "2 checkpoints". A disk that does not say passes.
void check_room(const std::string& folder, double bytes, std::string_view of_what);

// A descriptor above 2, whatever was closed when the program started; it is closed with its owner.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd);  // −1 stays −1, with errno as it was
  ~Descriptor();
  Descriptor(Descriptor&&) noexcept;
  Descriptor& operator=(Descriptor&&) noexcept;
  int get() const { return fd_; }
  int release();
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// Truncates an existing file. A name of something else (/dev/stdout, a pipe) is written to as it is. Throws an Error (io) when it cannot
// be opened, and when the pipe has no reader.
Descriptor open_for_writing(const std::string& path);

// Written beside the file, on the disk when put_in_place() returns, then renamed over it; anything that is no regular file
// (/dev/stdout, a pipe, /dev/null) is written to as it is. A link is followed, its target replaced. Every failure is an Error (io).
class AtomicFile {
 public:
  explicit AtomicFile(const std::string& path);
  ~AtomicFile();  // without put_in_place(): nothing stays
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  void write(const void* data, std::size_t bytes);
  void put_in_place();

 private:
  [[noreturn]] void fail() const;
  std::string path_, target_, unfinished_;  // as given; behind links; empty if it is no regular file
  Descriptor file_;
};

void write_atomically(const std::string& path, std::string_view bytes);

// A test's child process ends at that step of writing a file, as kill -9 would end it; 0: at none.
void end_at_write_step(long step);

// Standard descriptors that were closed are opened so that no file of the program gets their numbers; writing to them still fails.
void hold_standard_descriptors();

}  // namespace headroom
