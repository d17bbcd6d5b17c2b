#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "dist/nccl_abi.h"

namespace headroom::dist::nccl {

namespace {

std::string version_in_words(int v) { return fmt::format("{}.{}.{}", v / 10000, v / 100 % 100, v % 100); }

void* open_nccl() {
  if (const char* file = std::getenv("HEADROOM_NCCL")) {
    void* found = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    check(found, Code::nccl, "HEADROOM_NCCL: {}", dlerror());
    return found;
  }
  constexpr const char* name = "libnccl.so.2";
  if (void* loaded = dlopen(name, RTLD_NOW | RTLD_NOLOAD)) return loaded;
  for (const char* at : {name, "/usr/local/cuda/lib64/libnccl.so.2", "/usr/local/cuda/lib/libnccl.so.2"})
    if (void* found = dlopen(at, RTLD_NOW | RTLD_LOCAL)) return found;
  throw Error(Code::nccl,
              fmt::format("several GPUs need NCCL {} or newer, and {} was not found: install it (Debian and Ubuntu: libnccl2; pip: "
                          "nvidia-nccl-cu13), or name the file in HEADROOM_NCCL",
                          version_in_words(least_version), name));
}

template <class F>
void find_nccl(void* library, const char* name, F& into) {
  into = reinterpret_cast<F>(dlsym(library, name));
}

Library open_library() {
  setenv("NCCL_NVLS_ENABLE", "0", 0);  // multicast takes multiprocessors and state in the switch; nothing here adds in the network
  void* const at = open_nccl();
  Library l{};
  find_nccl(at, "ncclGetVersion", l.GetVersion);
  check(l.GetVersion && l.GetVersion(&l.version) == success, Code::nccl, "libnccl does not say which version it is; {} or newer is needed",
        version_in_words(least_version));
  check(l.version >= least_version, Code::nccl, "NCCL {} is too old: {} or newer is needed; name another in HEADROOM_NCCL",
        version_in_words(l.version), version_in_words(least_version));
  const auto needed = [&](const char* name, auto& into) {
    find_nccl(at, name, into);
    check(into, Code::nccl, "NCCL {} lacks {}, which every version of it should have; name another in HEADROOM_NCCL",
          version_in_words(l.version), name);
  };
  needed("ncclGetUniqueId", l.GetUniqueId);
  needed("ncclCommInitRankConfig", l.CommInitRankConfig);
  needed("ncclCommDestroy", l.CommDestroy);
  needed("ncclCommAbort", l.CommAbort);
  needed("ncclCommGetAsyncError", l.CommGetAsyncError);
  needed("ncclGetErrorString", l.GetErrorString);
  needed("ncclGetLastError", l.GetLastError);
  needed("ncclAllGather", l.AllGather);
  needed("ncclBroadcast", l.Broadcast);
  needed("ncclSend", l.Send);
  needed("ncclRecv", l.Recv);
  needed("ncclGroupStart", l.GroupStart);
  needed("ncclGroupEnd", l.GroupEnd);
  find_nccl(at, "ncclMemAlloc", l.MemAlloc);
  find_nccl(at, "ncclMemFree", l.MemFree);
  if (l.version >= with_windows) {  // before, the same names took other arguments
    find_nccl(at, "ncclCommWindowRegister", l.CommWindowRegister);
    find_nccl(at, "ncclCommWindowDeregister", l.CommWindowDeregister);
  }
  if (l.version >= with_all_to_all) find_nccl(at, "ncclAlltoAll", l.AlltoAll);
  return l;
}

}  // namespace

const Library& library() {
  static const Library opened = open_library();
  return opened;
}

}  // namespace headroom::dist::nccl
