#include "dry/launch.h"

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
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
  for (const char* name : {"libcuda.so.1", "libnvidia-ml.so.1"}) {
    std::error_code error;
    fs::create_symlink(library, fs::path(folder) / name, error);
    check(!error || error == std::errc::file_exists, Code::io, "no link '{}' can be made in '{}': {}", name, folder, error.message());
  }
  return {{"LD_PRELOAD", before(library, "LD_PRELOAD", ':')},
          {"LD_LIBRARY_PATH", before(folder, "LD_LIBRARY_PATH", ':')},
          {"TRITON_LIBCUDA_PATH", folder},
          {folder_variable, folder},
          {card_variable, card_text(dry.card)},
          {cards_variable, std::to_string(dry.cards)},
          {pinned_variable, std::to_string(dry.pinned_bytes)}};
}

}  // namespace headroom::dry
