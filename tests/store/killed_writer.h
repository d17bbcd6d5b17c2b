// A program that is killed inside a write of the store: really killed, in a process of its own, at the moment at which SQLite would
// delete the journal. The row is in the file and does not count yet: the journal is hot.
#pragma once
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

#include "store/results.h"

namespace headroom {

inline int deletions_to_live = 0;

// Makes the store (write 1), starts a run (2) and adds two rows (3, 4). Killed inside the write of that number; false where it was not.
inline bool killed_inside_write(const std::string& file, int write) {
  const pid_t child = fork();
  if (child == 0) {
    static sqlite3_vfs killer = *sqlite3_vfs_find(nullptr);
    killer.zName = "killer";
    killer.xDelete = [](sqlite3_vfs*, const char* name, int) {
      if (--deletions_to_live == 0) raise(SIGKILL);
      return unlink(name) == 0 ? SQLITE_OK : SQLITE_IOERR_DELETE;
    };
    sqlite3_vfs_register(&killer, 1);
    deletions_to_live = write;
    Results r(file, Results::Access::write);
    const auto run = r.start_run("attention", "{}", "m");
    for (const char* key : {"k1", "k2"}) r.add_row(run, {key, R"({"x": 1})", "{}"});
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
}

}  // namespace headroom
