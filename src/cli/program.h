// The whole program as a function. The Python wheel's library holds it, so that the wheel has every kernel once.
#pragma once

extern "C" [[gnu::visibility("default")]] int headroom_program(int argc, char** argv);
