// Files as this program reads and writes them. Every file that it writes as a whole goes through AtomicFile: whoever looks sees the
// old one or the new one, and what could not be finished is gone. What a program writes as it goes (a trace) opens with
// open_for_writing. Both keep off databases: no output replaces a store of results, by whatever name it is reached.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace headroom {

// All of a file, of a pipe too. `who` begins the one line that says what is wrong: "--text". What is named and is not there, or is
// a directory, is a bad_argument; what cannot be read is io.
std::string read_file(const std::string& path, std::string_view who, std::uint64_t most_bytes = std::uint64_t(1) << 40);

bool is_regular_file(const std::string& path);                      // false where it cannot be told
std::string why_no_file(const std::string& path);                   // "there is no 'x'", "'x' is a pipe, not a regular file"; "" of one
bool is_database(const std::string& path);                          // of SQLite, by its first bytes
bool is_same_file(const std::string& one, const std::string& two);  // by whatever names; files that are not there yet too

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

// An existing file's bytes go away with this; where a name stands for something that is no file (/dev/stdout, a pipe) that is
// written to. An Error (io) when it cannot be, and when nobody reads from the pipe.
Descriptor open_for_writing(const std::string& path);

// Written beside the file, on the disk when put_in_place() returns, then renamed over it; what is no regular file (/dev/stdout, a
// pipe, /dev/null) is written to as it is. A link is followed: its target is what is replaced. Every failure is an Error (io).
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
  std::string path_, target_, unfinished_;  // as asked; behind links; empty for what is no regular file
  Descriptor file_;
};

void write_atomically(const std::string& path, std::string_view bytes);

// A test's child process ends at that step of writing a file, as kill -9 would end it; 0: at none.
void end_at_write_step(long step);

// Standard descriptors that were closed are opened so that no file of the program gets their numbers; writing to them still fails.
void hold_standard_descriptors();

}  // namespace headroom
