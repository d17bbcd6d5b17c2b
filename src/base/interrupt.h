// Ctrl-C, SIGTERM and SIGHUP ask a command to stop: what it has in hand is finished, kept and said. A second one, a second later or
// more, ends the program at once: schedulers send the same signal twice within a moment. A file that may not grow (SIGXFSZ) and a
// reader that is gone (SIGPIPE) are errors of the write that met them, not the end of the program.
// The command line handles signals; the library inside another program never does, and interrupted() stays false. There the program may be asked.
#pragma once
#include <string>
#include <string_view>

namespace headroom {

void listen_for_signals();
bool interrupted();
int interrupting_signal();  // the first one; 0: none came
std::string stopped_by();   // "stopped by Ctrl-C", "stopped by SIGTERM"; another rank's signal is not known by its name

// An Error (interrupted) for work that has nothing to keep. A check() with stopped_by() among its parts would read the signal before it asks for one.
void stop_if_interrupted(std::string_view when = "; nothing was kept");

// Whether a call should end, asked of the program that the library is in, at most every 100 ms and only in the thread that made the call. It is
// asked between pieces of work (threads.h) and while ranks wait for each other. Null: not asked, and then nothing is spent on it.
using HostStops = int (*)(void* host);
void ask_host(HostStops, void* host);
bool host_is_asked();
void stop_if_host_says();              // an Error (interrupted)
void check_host_is_not_being_asked();  // its answer is waited for, so it may not compute: an Error (unsupported) in place of a deadlock

}  // namespace headroom
