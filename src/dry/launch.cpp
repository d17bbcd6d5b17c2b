#include "dry/launch.h"

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "dry/settings.h"

namespace headroom::dry {

namespace fs = std::filesystem;

namespace {

std::string before(const std::string& first, const char* variable, char between) {
  const char* const old = std::getenv(variable);
  return old && *old ? first + between + old : first;
}

// A program may ask nvidia-smi how many cards there are and how large: the same questions, answered from the description.
constexpr const char* nvidia_smi_answers = R"sh(
index=0 query=index,name,memory.total format=csv unit=' MiB'
for word in "$@"; do
  case "$word" in
    -L | --list-gpus)
      while [ "$index" -lt "$cards" ]; do
        echo "GPU $index: $name (UUID: GPU-headroom-dry-$index)"
        index=$((index + 1))
      done
      exit 0 ;;
    --query-gpu=*) query=${word#*=} ;;
    --format=*) format=${word#*=} ;;
    -i | --id) echo "nvidia-smi of a dry run does not choose a card" >&2; exit 6 ;;
  esac
done
case "$format" in *nounits*) unit= ;; esac
case "$format" in *noheader*) ;; *) echo "$query" | sed 's/,/, /g' ;; esac
while [ "$index" -lt "$cards" ]; do
  row=
  for field in $(echo "$query" | tr ',' ' '); do
    case "$field" in
      index) value=$index ;;
      name | gpu_name) value=$name ;;
      count) value=$cards ;;
      uuid | gpu_uuid) value=GPU-headroom-dry-$index ;;
      memory.total | memory.free) value=$total$unit ;;
      memory.used) value=0$unit ;;
      compute_cap) value=$sm ;;
      driver_version) value=580.00 ;;
      *) value=[N/A] ;;
    esac
    row="$row${row:+, }$value"
  done
  echo "$row"
  index=$((index + 1))
done
)sh";

std::string nvidia_smi(const Dry& dry) {
  std::string name;
  for (const char c : dry.card.name) name += c == '\'' ? ' ' : c;
  return fmt::format("#!/bin/sh\n# nvidia-smi of a dry run\ncards={} name='{}' total={} sm={}.{}", dry.cards, name,
                     dry.card.memory_bytes >> 20, dry.card.sm / 10, dry.card.sm % 10) +
         nvidia_smi_answers;
}

}  // namespace

std::vector<std::pair<std::string, std::string>> environment(const Dry& dry, const std::string& library, const std::string& folder) {
  for (const char* name : {"libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so"}) {
    std::error_code error;
    fs::create_symlink(library, fs::path(folder) / name, error);
    check(!error || error == std::errc::file_exists, Code::io, "no link '{}' can be made in '{}': {}", name, folder, error.message());
  }
  const std::string smi = (fs::path(folder) / "nvidia-smi").string();
  write_atomically(smi, nvidia_smi(dry));
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
