#include "dist/backends.h"

#include "base/error.h"
#include "base/text.h"
#include "dist/mpi.h"
#include "dist/nccl.h"
#include "dist/shared.h"

namespace headroom::dist {

namespace {

std::string shared_why_not(const Joining& j) {
  if (j.device.kind == DeviceKind::cuda) return "it joins ranks on CPUs";
  return j.rendezvous.one_machine() ? "" : "it joins ranks of one machine, and these are on several";
}

std::string nccl_why_not(const Joining& j) { return j.device.kind == DeviceKind::cuda ? "" : "it joins GPUs"; }

std::string mpi_cannot(const Joining& j) { return j.device.kind == DeviceKind::cuda ? "it joins ranks on CPUs" : mpi_why_not(); }

}  // namespace

const std::vector<Row>& backends() {
  static const std::vector<Row> rows = {
      {Backend::nccl, nccl_why_not, [](const Joining& j) { return make_nccl_comm(j.rendezvous, j.device.index, j.route); }},
      {Backend::shared, shared_why_not, [](const Joining& j) { return make_shared_comm(j.rendezvous); }},
      {Backend::mpi, mpi_cannot, [](const Joining& j) { return make_mpi_comm(j.rendezvous); }},
  };
  return rows;
}

std::vector<std::string> backend_words() {
  std::vector<std::string> words;
  for (const Row& row : backends()) words.emplace_back(names_of<Backend>.of(row.backend));
  return words;
}

std::unique_ptr<Comm> join(const Joining& j, std::optional<Backend> asked) {
  std::vector<std::string> reasons;
  for (const Row& row : backends()) {
    if (asked && row.backend != *asked) continue;
    const std::string why = row.why_not(j);
    if (why.empty()) return row.make(j);
    reasons.push_back(fmt::format("{}: {}", names_of<Backend>.of(row.backend), why));
  }
  if (asked && reasons.empty()) throw Error(Code::bad_argument, fmt::format("'{}' joins no processes", names_of<Backend>.of(*asked)));
  throw Error(Code::unsupported, fmt::format("the ranks cannot be joined: {}", joined(reasons, "; ")));
}

}  // namespace headroom::dist
