/* What the library asks of its MPI plugin (libheadroom_mpi.so), in C: the plugin is built where MPI is found and opened at run time, so that
 * nothing else links MPI. All functions answer 0, or a number that `words` turns into a sentence. */
#pragma once
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { headroom_mpi_abi = 1, headroom_mpi_given_up = -1 };

/* Asked while a call waits for other ranks: not 0 to give up, and the call answers headroom_mpi_given_up. */
typedef int (*headroom_mpi_give_up)(void* who);

typedef struct headroom_mpi_door {
  int abi;
  int (*start)(int* rank, int* ranks); /* may be called again */
  int (*exchange)(const void* mine, void* theirs, size_t part, headroom_mpi_give_up, void* who);
  int (*gather)(const void* part, void* whole, size_t part_bytes, headroom_mpi_give_up, void* who); /* part may be in its place */
  int (*broadcast)(void* whole, size_t bytes, int root, headroom_mpi_give_up, void* who);
  int (*barrier)(headroom_mpi_give_up, void* who);
  void (*words)(int error, char* into, size_t bytes);
  void (*finish)(void); /* waits for the other ranks */
} headroom_mpi_door;

typedef const headroom_mpi_door* (*headroom_mpi_entry)(void); /* the type of the one symbol, headroom_mpi */

#ifdef __cplusplus
}
#endif
