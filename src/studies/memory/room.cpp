#include "studies/memory/room.h"

#include <algorithm>

#include "base/error.h"
#include "base/host_memory.h"
#include "base/text.h"

namespace headroom::studies {

Room room_of(const Device& d, std::optional<std::uint64_t> asked, int gpus, RunBy program) {
  Room r;
  r.memory_bytes = asked.value_or(d.memory_bytes), r.gpus = gpus;
  if (d.kind == DeviceKind::cpu) return r;
  const Overhead o = overhead_of(d, gpus, program);
  r.pinning = program == RunBy::headroom ? mapping_ranks(gpus) : 1;
  const bool present = !d.bus.empty(), context_taken = present && !asked;
  if (!present && !asked) r.memory_bytes -= std::min(r.memory_bytes, o.beside.driver_keeps_bytes);
  const std::uint64_t lent = present ? d.total_bytes : d.memory_bytes - std::min(d.memory_bytes, o.beside.driver_keeps_bytes);
  const bool more_than_lent = asked && lent > 0 && *asked > lent;
  r.overhead_bytes = o.bytes() - (context_taken ? o.beside.context_bytes : 0);
  const auto words = [](std::uint64_t b) { return bytes_in_words(double(b)); };
  if (more_than_lent) {
    r.memory_bytes = lent;
    r.less_than_asked = fmt::format("all of the card; --memory asks for more, {}", words(*asked));
  }
  r.words = fmt::format("It fits if the peak and {} beside it ({}libraries {}{}; {}) are at most {}{}.", words(r.overhead_bytes),
                        context_taken ? "" : fmt::format("context {}, ", words(o.beside.context_bytes)), words(o.beside.libraries_bytes),
                        gpus > 1 ? fmt::format(", communication {}", words(o.communication_bytes)) : "",
                        o.measured ? "measured on this card" : "a reserve, not measured on this card", words(r.memory_bytes),
                        more_than_lent     ? ", " + r.less_than_asked
                        : present || asked ? ""
                                           : fmt::format(", what its driver makes available of {}", words(d.memory_bytes)));
  return r;
}

std::uint64_t limit_of_a_run(const Device& d, std::optional<std::uint64_t> asked, dist::Group* group, std::uint64_t taken) {
  const std::uint64_t available = group ? group->memory_of_each(d, taken) : d.memory_bytes;
  return asked ? std::min(*asked, available) : available;
}

std::uint64_t room_for_a_run(const Device& d, std::optional<std::uint64_t> asked, dist::Group* group) {
  if (d.kind == DeviceKind::cpu) return limit_of_a_run(d, asked, group);
  const std::uint64_t most = room_of(d, asked, group ? group->ranks() : 1).for_peak();
  return group ? group->least(most, "their room") : most;
}

std::string misfit(const Room& r, std::uint64_t peak) {
  const auto words = [](std::uint64_t b) { return bytes_in_words(double(b)); };
  return fmt::format("needs {}{}, {} allowed", words(r.needed_bytes(peak)),
                     r.overhead_bytes > 0 ? fmt::format(" with {} beside its tensors", words(r.overhead_bytes)) : "",
                     words(r.memory_bytes));
}

std::string host_misfit(std::uint64_t bytes, const Device& d, dist::Group* group) {
  if (bytes == 0) return "";
  const std::uint64_t here = host_memory_for(d, group ? group->rendezvous().local_ranks() : 1),
                      most = group ? group->least(here, "their host memory") : here;
  if (bytes <= most) return "";
  return fmt::format("its blocks keep {} in host memory, and {} are allowed there; try --keep host:N", bytes_in_words(double(bytes)),
                     bytes_in_words(double(most)));
}

void tell_kept(engine::Recipe& r, dist::Group& group) {
  using Words = WordsOf<engine::Keeping>;
  r.keep = *Words::named(group.rendezvous().collect(group.first() ? Words::to(r.keep) : "", "what blocks keep").front());
}

}  // namespace headroom::studies
