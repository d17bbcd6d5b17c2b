// Where a program is, read from its own structures while it waits for us: Python's frames and autograd's node of the calling thread.
//
// No Python function is called and its lock is not taken: PyTorch's allocator calls us under a lock of its own, and a thread that frees a tensor
// holds Python's and waits for that one. It is safe: the calling thread is inside a call from Python, so its frames do not move and what
// they hold is alive. Where Python keeps what, the observer learns from the running interpreter and tells (`headroom_dry_python`).
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

namespace headroom::dry {

struct PythonFrame {
  const void* code;
  std::int32_t instruction;  // in bytes
  const void* object;        // the module that is called, where the frame is nn.Module's call; else null
};

bool frames_are_known();  // the observer told

// The innermost first, at most `most`. 0: this thread runs no Python, or the observer has not told where frames are.
std::size_t python_frames(PythonFrame* out, std::size_t most);

struct PythonCode {
  const void *file = nullptr, *function = nullptr;  // Python's texts; their addresses tell apart two codes that had one address
};
PythonCode code_of(const PythonFrame&);  // only while the frame is there
std::string utf8_of(const void* text);   // while the code lives
int line_of(const PythonFrame&);         // as well; below 0: the interpreter's own

// Autograd's number of what the calling thread does: of the node that runs, or of the next that a forward operation makes. 0: not known.
struct Autograd {
  std::uint64_t sequence = 0;
  bool backward = false;  // a node runs
  bool enabled = true;    // gradients are recorded; within autocast's copy of a weight: around it
};
Autograd autograd_now();

}  // namespace headroom::dry

// What the observer learned, in bytes from the beginning of each structure; -1: it has none. The address masks take away tag bits.
extern "C" struct headroom_dry_layout {
  std::int32_t thread_frame, thread_entry, entry_frame;                 // the thread's innermost frame, directly or by an entry
  std::int32_t frame_code, frame_back, frame_instruction, frame_first;  // frame_first: the first local variable
  std::int32_t instruction_is_index;          // 1: an index of 32 bits in units of instruction_unit; 0: an address
  std::int32_t instruction_unit, code_begin;  // code_begin: where a code's instructions begin
  std::int32_t code_file, code_function, text_begin, text_length, text_state, text_ascii_mask;
  std::int32_t text_wide_begin,
      text_kind_bit;  // of a text that is not plain ASCII: its characters have 1, 2 or 4 bytes, as these three bits say
  const void* code_type;
  const void* module_codes[4];  // nn.Module's calls: their first variable is the module
};
extern "C" void headroom_dry_python(const headroom_dry_layout*);
