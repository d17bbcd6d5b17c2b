// The program's entry, alone in its file: in the Python wheel everything else is in libheadroom.so.
#include "cli/program.h"

int main(int argc, char** argv) { return headroom_program(argc, argv); }
