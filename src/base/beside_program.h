// Libraries that are built and installed with the program, and opened at run time where they are needed.
#pragma once
#include <string>

namespace headroom {

// Its path; empty if it is not there. Looked for where this code was loaded from (the program, or libheadroom.so in another program), and
// where the program lies.
std::string file_beside_program(const std::string& name);

}  // namespace headroom
