#include <elf.h>
#include <link.h>

#include <cstring>

#include "base/error.h"
#include "dist/rendezvous.h"

namespace headroom::dist {

namespace {

struct Wanted {
  std::uintptr_t inside;
  std::string id;
};

// The note that the linker leaves in every program and library, of the one that holds an address.
int look(dl_phdr_info* object, std::size_t, void* data) {
  auto& wanted = *static_cast<Wanted*>(data);
  bool holds = false;
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& p = object->dlpi_phdr[i];
    const auto at = object->dlpi_addr + p.p_vaddr;
    holds |= p.p_type == PT_LOAD && wanted.inside >= at && wanted.inside < at + p.p_memsz;
  }
  for (int i = 0; holds && i < object->dlpi_phnum; ++i) {
    const auto& p = object->dlpi_phdr[i];
    if (p.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const unsigned char*>(object->dlpi_addr + p.p_vaddr);
    for (const auto* end = at + p.p_memsz; at + sizeof(ElfW(Nhdr)) <= end;) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const auto* name = at + sizeof note;
      const auto* words = name + (note.n_namesz + 3) / 4 * 4;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0)
        for (unsigned k = 0; k < note.n_descsz; ++k) wanted.id += fmt::format("{:02x}", words[k]);
      at = words + (note.n_descsz + 3) / 4 * 4;
    }
  }
  return holds;
}

}  // namespace

std::string build_id() {
  Wanted w{reinterpret_cast<std::uintptr_t>(&look), {}};
  dl_iterate_phdr(look, &w);
  return fmt::format("{} {}", HEADROOM_VERSION, w.id.substr(0, 12));
}

}  // namespace headroom::dist
