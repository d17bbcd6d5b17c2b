// Ranks that MPI has started, on one machine or several, on CPUs: by the plugin library libheadroom_mpi.so, which is built where MPI is found.
#pragma once
#include <memory>
#include <string>

#include "dist/comm.h"
#include "dist/rendezvous.h"

namespace headroom::dist {

std::string mpi_why_not();                         // empty where the plugin can be opened; starts nothing
std::unique_ptr<Comm> make_mpi_comm(Rendezvous&);  // an Error where MPI counts the ranks in another way
Address address_by_mpi(int rank, int ranks);       // rank 0's address: it finds a free port and sends it through MPI
void finish_mpi();                                 // every rank calls it after its last call; does nothing if MPI was not started

}  // namespace headroom::dist
