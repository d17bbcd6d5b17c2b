// The backends that join processes, best first: adding one is adding a file and a row in backends.cpp.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/device.h"
#include "dist/comm.h"
#include "dist/nccl.h"
#include "dist/rendezvous.h"

namespace headroom::dist {

struct Joining {
  Rendezvous& rendezvous;
  const Device& device;
  Route route = Route::automatic;  // on a GPU
};

struct Row {
  Backend backend;
  std::string (*why_not)(const Joining&);  // empty: it can join these ranks
  std::unique_ptr<Comm> (*make)(const Joining&);
};
const std::vector<Row>& backends();

std::vector<std::string> backend_words();  // their names

// By the backend asked for, or the first that can; an Error says why it cannot, or why none can.
std::unique_ptr<Comm> join(const Joining&, std::optional<Backend> asked);

}  // namespace headroom::dist
