#include "base/beside_program.h"

#include <dlfcn.h>

#include <filesystem>

namespace headroom {

namespace fs = std::filesystem;

std::string file_beside_program(const std::string& name) {
  std::error_code none;
  Dl_info loaded{};
  static const int anything = 0;
  const fs::path code = dladdr(&anything, &loaded) && loaded.dli_fname ? fs::path(loaded.dli_fname) : fs::path();
  const fs::path from = code.parent_path(), behind_links = fs::canonical(code, none).parent_path();
  const fs::path here = fs::read_symlink("/proc/self/exe", none).parent_path();
  for (const fs::path& folder : {from, behind_links, here, here / HEADROOM_LIBRARY_FROM_BIN, here.parent_path()})
    if (!folder.empty() && fs::exists(folder / name, none)) return (folder / name).string();
  return "";
}

}  // namespace headroom
