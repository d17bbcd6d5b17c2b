// Ranks that MPI has started, on one machine or several, on CPUs: by the plugin library libheadroom_mpi.so, which is built where MPI is found.
#pragma once
#include <memory>
#include <string>

#include "dist/comm.h"
#include "dist/rendezvous.h"

namespace headroom::dist {

std::string mpi_why_not();                                 // empty where the plugin can be opened; starts nothing
std::unique_ptr<Comm> make_mpi_comm(Rendezvous&);          // an Error where MPI counts the ranks in another way
Address address_by_mpi(int rank, int ranks);               // where rank 0 is: told through MPI by rank 0, which looks for a free port
void finish_mpi();                                         // on every rank, when nobody calls any more; nothing where MPI was not started
std::string file_beside_program(const std::string& name);  // of a library that is installed with the program; empty where it is not

}  // namespace headroom::dist
