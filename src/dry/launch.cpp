#include "dry/launch.h"

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "dry/nvidia_smi.h"
#include "dry/settings.h"

namespace headroom::dry {

namespace fs = std::filesystem;

namespace {

std::string before(const std::string& first, const char* variable, char between) {
  const char* const old = std::getenv(variable);
  return old && *old ? first + between + old : first;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> environment(const Dry& dry, const std::string& library, const std::string& folder) {
  for (const char* name : {"libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so"}) {
    std::error_code error;
    fs::create_symlink(library, fs::path(folder) / name, error);
    check(!error || error == std::errc::file_exists, Code::io, "no link '{}' can be made in '{}': {}", name, folder, error.message());
  }
  const std::string smi = (fs::path(folder) / "nvidia-smi").string();
  write_atomically(smi, nvidia_smi(dry, folder));
  fs::permissions(smi, fs::perms::owner_all);
  return {{"LD_PRELOAD", before(library, "LD_PRELOAD", ':')},
          {"LD_LIBRARY_PATH", before(folder, "LD_LIBRARY_PATH", ':')},
          {"PATH", before(folder, "PATH", ':')},
          {"TRITON_LIBCUDA_PATH", folder},
          {folder_variable, folder},
          {card_variable, card_text(dry.card)},
          {cards_variable, std::to_string(dry.cards)},
          {pinned_variable, std::to_string(dry.pinned_bytes)}};
}

}  // namespace headroom::dry
