/* What libheadroom_dry.so offers to an observer in the same process (Python through ctypes, or C++): found with dlsym(RTLD_DEFAULT, …),
 * so a program that does not run dry simply does not find them. Any thread may call; nothing here waits or throws. */
#pragma once
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define HEADROOM_DRY_DOORS 1
int headroom_dry_version(void); /* HEADROOM_DRY_DOORS of the library */

/* ---- Marks: a word into the record. `what` is "phase", "step", "module", "program", …; what each means is between observer and reader. */
void headroom_dry_mark(const char* what, const char* text, int64_t value);

/* The calling thread's scope from now on: a number of the observer's own (a module's, say), in every block, launch and read of this
 * thread until it changes. Name it once with headroom_dry_mark("scope", NAME, NUMBER). Returns the number before. */
uint32_t headroom_dry_scope(uint32_t number);

/* ---- Values: what the card's memory holds, where that is known. Copies to the card, fills and copies on it are kept by the library
 * itself (up to 1 MiB each); an observer adds results of small operations and takes back what an operation overwrote.
 * A block's values are forgotten when PyTorch's allocator takes it back. */
/* 1: all of it; 2: some of it is a guess; 3: some a word; 4: some a choice; 0: unknown bytes are zeros */
int headroom_dry_known(const void* p, size_t bytes, void* out);
void headroom_dry_know(void* p, size_t bytes, const void* from);
void headroom_dry_guess(void* p, size_t bytes, const void* from); /* the same, but it is a guess: reads of it count as unknown */
/* The same, but it stands for a choice among unknown numbers (argmax); `word` 1: for one of many words, in few rows. */
void headroom_dry_choose(void* p, size_t bytes, const void* from, int word);
void headroom_dry_forget(void* p, size_t bytes);
/* Pieces of a tensor: so many bytes from each of `count` places on, which are told in elements of `element` bytes. */
void headroom_dry_forget_each(void* p, const int64_t* places, size_t count, size_t element, size_t bytes);

/* What the calling thread's next read of so many bytes gives: counts that an operation reads inside itself (nonzero, boolean indexing).
 * `known` 1: they are what a card would give. Answers queue; headroom_dry_unanswer drops the rest. */
void headroom_dry_answer(const void* value, size_t bytes, int known);
void headroom_dry_unanswer(void);
/* What the calling thread's reads give for unknown bytes, again and again: one element of at most 16 bytes, until it is called with 0.
 * Reads of more than 1 MiB give zeros. */
void headroom_dry_unknown(const void* element, size_t bytes);

/* ---- Numbers, as they are now. */
/* PyTorch's largest allocated and reserved bytes of a card since `reset` was last 1. 0: there is no such card. */
int headroom_dry_peak(int device, uint64_t* allocated, uint64_t* reserved, int reset);
uint64_t headroom_dry_work(void);          /* kernels, copies and fills that the card was given so far, but for copies to the host */
uint64_t headroom_dry_asked(void);         /* bytes that PyTorch's allocator handed out so far, of all cards together */
uint64_t headroom_dry_reads(void);         /* reads of the card so far */
uint64_t headroom_dry_unknown_reads(void); /* reads whose values were not known */
uint64_t headroom_dry_reads_here(void);    /* reads of the calling thread: a change says that an operation read */
uint64_t headroom_dry_unknown_reads_here(void);
uint64_t headroom_dry_clock_ns(void);      /* how far the program would be on a machine with the card: pace.h */
int headroom_dry_on_device(const void* p); /* the card's index, or −1 */

/* Python's stack at each allocation and read: 0 turns it off, else the most frames that are kept (48 at first). */
void headroom_dry_frames(int most);

/* What PyTorch's caching allocator of a device was asked, in its own order (record.h, Request: 24 bytes each); `whole` 1: from its first
 * request on. Once, at the end of the run, in as many calls as it takes. */
void headroom_dry_requests(uint32_t device, const void* requests, size_t count, int whole);

/* ---- Random numbers of the CPU that nothing reads. `state` is what torch.Generator.get_state gives: it is moved on by so many words of 32 bits.
 * 0: it is in no form that is known here. */
int headroom_dry_skip_draws(void* state, size_t bytes, uint64_t words);
void headroom_dry_untouched(void* memory,
                            size_t bytes); /* zeros again, in pages that take no memory until they are written; private memory only */

/* Where this interpreter keeps its frames (library/frames.h), once: then blocks know their module, too. A thread that has no scope of its own
 * gets the innermost module's number, and a block of the backward pass that of the forward operation. */
struct headroom_dry_layout;
void headroom_dry_python(const struct headroom_dry_layout* layout);
uint32_t headroom_dry_object(const void* object); /* a module's number, by its address; 0: it was in no frame so far */

#ifdef __cplusplus
}
#endif
