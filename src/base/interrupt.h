// Ctrl-C, SIGTERM and SIGHUP ask a command to stop: what it has in hand is finished, kept and said. A second one, a second later or
// more, ends the program at once: schedulers send the same signal twice within a moment. A file that may not grow (SIGXFSZ) and a
// reader that is gone (SIGPIPE) are errors of the write that met them, not the end of the program.
// The command line handles signals; the library inside another program never does, and interrupted() stays false.
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

}  // namespace headroom
