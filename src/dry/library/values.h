// What is known of the card's memory: small things that were sent there, filled, copied, or told by an observer (doors.h).
#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace headroom::dry {

constexpr std::size_t most_known_bytes = 1 << 20;  // most of one copy

// guessed: some bytes are guesses; chosen: some stand for a choice among unknown numbers, and a size that follows from them may be any
// word: the same, of many words in few rows.
enum class Knowledge { none, all, guessed, word, chosen };

Knowledge known(const void* p, std::size_t bytes, void* out);  // unknown bytes of `out` become zeros
void know(void* p, std::size_t bytes, const void* from, Knowledge = Knowledge::all);
void know_filled(void* p, std::size_t bytes, unsigned char value);
void forget(void* p, std::size_t bytes);
void forget_each(void* p, std::span<const std::int64_t> places, std::size_t element, std::size_t bytes);
// Values that are computed on demand: `fetch` fills the bytes, or says that they are unknown. It may wait for other processes.
void know_later(void* p, std::size_t bytes, std::function<bool(char* out)> fetch);
void copy_known(void* to, const void* from, std::size_t bytes);  // on the card

// Python objects that ranks send each other are kept and read whatever their size: a program unpickles them.
bool is_object(const void* bytes, std::size_t count);  // pickled, or a file of torch.save
bool holds_object(const void* p, std::size_t bytes);   // on the card

// What the calling thread's reads give for unknown bytes, again and again: one element, of at most 16 bytes. 0 bytes: zeros.
void unknown_reads_as(const void* element, std::size_t bytes);
// The program reads the card: `guess_true` gives 1 for one unknown byte. More than most_known_bytes are zeros, if they are no object.
void read_device(void* to, const void* from, std::size_t bytes, bool guess_true);

void answer(const void* value, std::size_t bytes, bool known);
void unanswer();
struct Reads {
  std::uint64_t all = 0, unknown = 0;
};
Reads reads();
Reads reads_here();  // the calling thread's

}  // namespace headroom::dry
