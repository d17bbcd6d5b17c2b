#include "dry/nvidia_smi.h"

#include <fmt/format.h>

namespace headroom::dry {

namespace {

constexpr const char* answers = R"sh(
driver=580.00 cuda=13.2 mib=1048576

refuse() { echo "nvidia-smi of a dry run: $1" >&2; exit 2; }
bus_of() { printf '00000000:%02X:00.0' $(($1 + 1)); }

# "PID BYTES" of each process that takes memory of a card.
users_of() {
  row=0
  [ -r "$folder/cards" ] || return 0
  while pid=$(od -An -t d4 -j $((row * 520)) -N 4 "$folder/cards" 2>/dev/null | tr -d ' ') && [ "${pid:-0}" != 0 ]; do
    bytes=$(od -An -t u8 -j $((row * 520 + 8 + $1 * 8)) -N 8 "$folder/cards" | tr -d ' ')
    [ "$bytes" = 0 ] || [ ! -d "/proc/$pid" ] || echo "$pid $bytes"
    row=$((row + 1))
  done
}
used_of() { users_of "$1" | { sum=$others; while read -r pid bytes; do sum=$((sum + bytes)); done; echo $((sum / mib)); }; }
name_of() { tr '\0' '\n' <"/proc/$1/cmdline" 2>/dev/null | head -n 1; }

ask= query= format=csv every= chosen=
while [ $# -gt 0 ]; do
  word=$1 value=
  case "$word" in --*=*) value=${word#*=} word=${word%%=*} ;; esac
  case "$word" in  # with a value, in the same word or the next
    -i | --id | --query-gpu | --query-compute-apps | --query-accounted-apps | --format | -l | --loop | -lms | --loop-ms | -d | --display)
      if [ -z "$value" ]; then
        [ $# -gt 1 ] || case "$word" in -l) value=5 ;; *) refuse "$word needs a value" ;; esac
        [ -n "$value" ] || { value=$2; shift; }
      fi ;;
  esac
  case "$word" in
    -L | --list-gpus) ask=list ;;
    -q | --query) ask=${ask:-log} ;;
    -x | --xml-format) ask=xml ;;
    -d | --display) ;;
    -i | --id) chosen=$value ;;
    --query-gpu) ask=gpus query=$value ;;
    --query-compute-apps | --query-accounted-apps) ask=processes query=$value ;;
    --format) format=$value ;;
    -l | --loop) every=$value ;;
    -lms | --loop-ms) every=$(echo "$value" | awk '{ print $1 / 1000 }') ;;
    --version) ask=version ;;
    -h | --help) ask=help ;;
    *) refuse "$word is not answered; -L, -q, -x, -i, -l, --query-gpu, --query-compute-apps and --format are" ;;
  esac
  shift
done

shown=
index=0
while [ "$index" -lt "$cards" ]; do
  case ",$chosen," in
    ,, | *",$index,"* | *",GPU-headroom-dry-$index,"* | *",$(bus_of $index),"*) shown="$shown $index" ;;
  esac
  index=$((index + 1))
done
[ -n "$shown" ] || { echo "No devices were found"; exit 6; }

header() {  # a name with the unit that its values have
  case "$1" in
    memory.* | used_memory | used_gpu_memory) echo "$1 [MiB]" ;;
    utilization.* | fan.speed) echo "$1 [%]" ;;
    power.*) echo "$1 [W]" ;;
    clocks.*) echo "$1 [MHz]" ;;
    *) echo "$1" ;;
  esac
}
headers() {
  case "$format" in *noheader*) return ;; esac
  row=
  for field in $(echo "$query" | tr ',' ' '); do row="$row${row:+, }$(header "$field")"; done
  echo "$row"
}
unit() { case "$format" in *nounits*) echo "$1" ;; *) echo "$1 $2" ;; esac; }

gpus() {
  headers
  for index in $shown; do
    row=
    for field in $(echo "$query" | tr ',' ' '); do
      case "$field" in
        index) value=$index ;;
        name | gpu_name) value=$name ;;
        count) value=$cards ;;
        uuid | gpu_uuid) value=GPU-headroom-dry-$index ;;
        gpu_bus_id | pci.bus_id) value=$(bus_of "$index") ;;
        memory.total) value=$(unit "$total" MiB) ;;
        memory.used) value=$(unit "$(used_of "$index")" MiB) ;;
        memory.free) value=$(unit $((total - $(used_of "$index"))) MiB) ;;
        memory.reserved) value=$(unit 0 MiB) ;;
        utilization.gpu | utilization.memory) value=$(unit 0 %) ;;
        temperature.gpu) value=40 ;;
        power.draw | power.draw.instant | power.draw.average) value=$(unit 100.00 W) ;;
        pstate) value=P0 ;;
        compute_mode) value=Default ;;
        persistence_mode) value=Enabled ;;
        compute_cap) value=$sm ;;
        driver_version) value=$driver ;;
        timestamp) value=$(date '+%Y/%m/%d %H:%M:%S.000') ;;
        *) value='[N/A]' ;;
      esac
      row="$row${row:+, }$value"
    done
    echo "$row"
  done
}

processes() {
  headers
  for index in $shown; do
    users_of "$index" | while read -r pid bytes; do
      row=
      for field in $(echo "$query" | tr ',' ' '); do
        case "$field" in
          pid) value=$pid ;;
          name | process_name) value=$(name_of "$pid") ;;
          used_memory | used_gpu_memory) value=$(unit $((bytes / mib)) MiB) ;;
          gpu_name) value=$name ;;
          gpu_uuid) value=GPU-headroom-dry-$index ;;
          gpu_bus_id) value=$(bus_of "$index") ;;
          *) value='[N/A]' ;;
        esac
        row="$row${row:+, }$value"
      done
      echo "$row"
    done
  done
}

log() {
  printf '\n==============NVSMI LOG==============\n\n%-42s: %s\n' Timestamp "$(date '+%a %b %e %H:%M:%S %Y')"
  printf '%-42s: %s\n' 'Driver Version' $driver 'CUDA Version' $cuda
  printf '\n%-42s: %s\n' 'Attached GPUs' "$cards"
  for index in $shown; do
    used=$(used_of "$index")
    echo "GPU $(bus_of "$index")"
    printf '    %-38s: %s\n' 'Product Name' "$name" 'GPU UUID' "GPU-headroom-dry-$index" 'Minor Number' "$index"
    printf '    FB Memory Usage\n'
    printf '        %-34s: %s MiB\n' Total "$total" Reserved 0 Used "$used" Free $((total - used))
    printf '    Utilization\n'
    printf '        %-34s: 0 %%\n' GPU Memory
    printf '    Compute Mode                          : Default\n\n'
  done
}

xml() {
  echo '<?xml version="1.0" ?>'
  echo "<nvidia_smi_log><driver_version>$driver</driver_version><cuda_version>$cuda</cuda_version><attached_gpus>$cards</attached_gpus>"
  for index in $shown; do
    used=$(used_of "$index")
    echo "<gpu id=\"$(bus_of "$index")\"><product_name>$name</product_name><uuid>GPU-headroom-dry-$index</uuid><minor_number>$index</minor_number>"
    echo "<fb_memory_usage><total>$total MiB</total><reserved>0 MiB</reserved><used>$used MiB</used><free>$((total - used)) MiB</free></fb_memory_usage>"
    echo '<utilization><gpu_util>0 %</gpu_util><memory_util>0 %</memory_util></utilization><processes>'
    users_of "$index" | while read -r pid bytes; do
      echo "<process_info><pid>$pid</pid><type>C</type><used_memory>$((bytes / mib)) MiB</used_memory></process_info>"
    done
    echo '</processes></gpu>'
  done
  echo '</nvidia_smi_log>'
}

line() { printf '%*s' "$1" '' | tr ' ' "${2:--}"; }
table() {
  date '+%a %b %e %H:%M:%S %Y'
  echo "+$(line 89)+"
  printf '| %-33s %-30s %-23s|\n' "NVIDIA-SMI $driver" "Driver Version: $driver" "CUDA Version: $cuda"
  echo "+$(line 41)+$(line 24)+$(line 22)+"
  echo '| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |'
  echo '| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |'
  echo '|                                         |                        |               MIG M. |'
  echo "|$(line 41 =)+$(line 24 =)+$(line 22 =)|"
  for index in $shown; do
    printf '|%4d  %-27.27s%6s  |   %16s Off |%21s |\n' "$index" "$name" On "$(bus_of "$index")" N/A
    printf '|%-41s|%8dMiB / %6dMiB |      0%%      Default |\n' ' N/A   40C    P0            100W /   N/A' "$(used_of "$index")" "$total"
    printf '|%41s|%24s|%21s |\n' '' '' N/A
    echo "+$(line 41)+$(line 24)+$(line 22)+"
  done
  echo
  echo "+$(line 89)+"
  echo '| Processes:                                                                              |'
  echo '|  GPU   GI   CI              PID   Type   Process name                        GPU Memory |'
  echo '|        ID   ID                                                               Usage      |'
  echo "|$(line 89 =)|"
  found=$(for index in $shown; do
    users_of "$index" | while read -r pid bytes; do
      printf '|%5d   N/A  N/A  %15d      C   %-32.32s %9dMiB |\n' "$index" "$pid" "$(name_of "$pid")" $((bytes / mib))
    done
  done)
  echo "${found:-|  No running processes found                                                             |}"
  echo "+$(line 89)+"
}

answer() {
  case "$ask" in
    list) for index in $shown; do echo "GPU $index: $name (UUID: GPU-headroom-dry-$index)"; done ;;
    gpus) gpus ;;
    processes) processes ;;
    log) log ;;
    xml) xml ;;
    version) printf '%-20s: %s\n' 'NVIDIA-SMI version' $driver 'NVML version' $driver 'DRIVER version' $driver 'CUDA Version' $cuda ;;
    help) echo 'nvidia-smi of a dry run answers -L, -q, -x, -i, -l, --version, --query-gpu=, --query-compute-apps= and --format=csv[,noheader][,nounits]' ;;
    *) table ;;
  esac
}

answer
while [ -n "$every" ]; do
  sleep "$every" || exit 1
  answer
done
)sh";

std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

}  // namespace

std::string nvidia_smi(const Dry& dry, const std::string& folder) {
  return fmt::format("#!/bin/sh\n# nvidia-smi of a dry run\nfolder={} cards={} name={} total={} others={} sm={}.{}\n", quoted(folder),
                     dry.cards, quoted(dry.card.name), dry.card.memory_bytes >> 20, dry.card.others_bytes, dry.card.sm / 10,
                     dry.card.sm % 10) +
         answers;
}

}  // namespace headroom::dry
