#include "dry/library/images.h"

#include <dlfcn.h>
#include <elf.h>

#include <algorithm>
#include <cstring>
#include <mutex>

#include "dry/library/memory.h"
#include "dry/library/world.h"

namespace headroom::dry {

namespace {

template <class T>
T value_at(const char* p) {
  T v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

// A kernel's attributes: a form, a kind, and for form 4 a length and a value. Kind 0x17 is a parameter: its ordinal at byte 4 of the value,
// its size above bit 18 of the word at byte 8.
void read_attributes(const char* p, std::size_t bytes, KernelCode& k) {
  constexpr int with_length = 4, parameter = 0x17;
  for (const char* const end = p + bytes; end - p >= 4;) {
    const int form = p[0], kind = p[1];
    const std::size_t length = form == with_length ? value_at<std::uint16_t>(p + 2) : 0;
    if (length > std::size_t(end - p) - 4) return;
    if (kind == parameter && length >= 12) {
      const auto ordinal = value_at<std::uint16_t>(p + 8);
      if (k.parameter_bytes.size() <= ordinal) k.parameter_bytes.resize(ordinal + 1u);
      k.parameter_bytes[ordinal] = std::uint16_t(value_at<std::uint32_t>(p + 12) >> 18);
    }
    p += 4 + length;
  }
}

using Decompress = std::size_t(void*, std::size_t, const void*, std::size_t);
Decompress* zstd() {  // Python's or the system's; without it, kernels keep the usual registers
  static auto* const function = [] {
    void* const library = dlopen("libzstd.so.1", RTLD_NOW);
    return library ? reinterpret_cast<Decompress*>(dlsym(library, "ZSTD_decompress")) : nullptr;
  }();
  return function;
}

// The older compression of images: LZ4's block format.
std::vector<char> lz4(const char* in, std::size_t bytes, std::size_t plain_bytes) {
  std::vector<char> out;
  out.reserve(plain_bytes);
  const auto* p = reinterpret_cast<const unsigned char*>(in);
  const auto* const end = p + bytes;
  const auto more = [&](std::size_t n) {
    if (n != 15) return n;
    unsigned char next = 255;
    while (next == 255 && p < end) {
      next = *p++;
      n += next;
    }
    return n;
  };
  while (p < end) {
    const unsigned char token = *p++;
    const std::size_t literals = more(token >> 4);
    if (literals > std::size_t(end - p) || out.size() + literals > plain_bytes) return {};
    out.insert(out.end(), p, p + literals);
    p += literals;
    if (end - p < 2) break;
    const std::size_t back = p[0] | p[1] << 8;
    p += 2;
    const std::size_t length = more(token & 15) + 4;
    if (back == 0 || back > out.size() || out.size() + length > plain_bytes) return {};
    for (std::size_t i = 0; i < length; ++i) out.push_back(out[out.size() - back]);
  }
  return out;
}

// One library's images: a head of 16 bytes, then for each image a head of its own that says its kind, lengths, architecture and compression.
void read_container(const char* container, Codes& out) {
  constexpr std::uint32_t magic = 0xba55ed50;
  constexpr std::uint16_t machine_code = 2;
  constexpr std::uint64_t with_zstd = 0x8000, with_lz4 = 0x2000;
  if (!container || value_at<std::uint32_t>(container) != magic) return;
  const unsigned sm = unsigned(card().sm);
  const char* best = nullptr;
  std::uint32_t best_sm = 0;
  const char *p = container + 16, *const end = p + value_at<std::uint64_t>(container + 8);
  for (; p < end; p += value_at<std::uint32_t>(p + 4) + value_at<std::uint64_t>(p + 8)) {
    const auto arch = value_at<std::uint32_t>(p + 28);
    const bool runs = value_at<std::uint16_t>(p) == machine_code && arch / 10 == sm / 10 && arch <= sm;
    if (runs && arch >= best_sm) {
      best = p;
      best_sm = arch;
    }
  }
  if (!best) return;
  const char* const code = best + value_at<std::uint32_t>(best + 4);
  const auto flags = value_at<std::uint64_t>(best + 40);
  const std::size_t packed = value_at<std::uint32_t>(best + 16), whole = value_at<std::uint64_t>(best + 56);
  if (flags & with_zstd) {
    std::vector<char> plain(whole);
    if (zstd() && zstd()(plain.data(), whole, code, packed) == whole) read_image(plain.data(), whole, out);
  } else if (flags & with_lz4) {
    const std::vector<char> plain = lz4(code, packed, whole);
    read_image(plain.data(), plain.size(), out);
  } else {
    read_image(code, std::size_t(value_at<std::uint64_t>(best + 8)), out);
  }
  for (auto& [name, kernel] : out) kernel.sm = int(best_sm);
}

}  // namespace

void read_image(const char* image, std::size_t bytes, Codes& out) {
  if ((bytes && bytes < sizeof(Elf64_Ehdr)) || std::memcmp(image, ELFMAG, SELFMAG) != 0) return;
  const auto inside = [&](std::uint64_t at, std::uint64_t n) { return !bytes || (at <= bytes && n <= bytes - at); };
  const auto head = value_at<Elf64_Ehdr>(image);
  if (!inside(head.e_shoff, std::uint64_t(head.e_shnum) * head.e_shentsize) || head.e_shentsize < sizeof(Elf64_Shdr) ||
      head.e_shstrndx >= head.e_shnum)
    return;
  const auto section = [&](int i) { return value_at<Elf64_Shdr>(image + head.e_shoff + std::size_t(i) * head.e_shentsize); };
  const Elf64_Shdr strings = section(head.e_shstrndx);
  if (!inside(strings.sh_offset, strings.sh_size)) return;
  for (int i = 0; i < head.e_shnum; ++i) {
    const Elf64_Shdr s = section(i);
    if (s.sh_name >= strings.sh_size) continue;
    const char* const text = image + strings.sh_offset + s.sh_name;
    const std::string_view name(text, strnlen(text, strings.sh_size - s.sh_name));
    const auto after = [&](std::string_view prefix) -> KernelCode* {
      return name.starts_with(prefix) ? &out[std::string(name.substr(prefix.size()))] : nullptr;
    };
    if (KernelCode* const k = after(".text.")) k->registers = int(s.sh_info >> 24);
    if (KernelCode* const k = after(".nv.shared.")) k->shared_bytes = int(s.sh_size);
    if (KernelCode* const k = after(".nv.info."); k && inside(s.sh_offset, s.sh_size)) read_attributes(image + s.sh_offset, s.sh_size, *k);
  }
}

const KernelCode* code_of(const void* container, std::string_view kernel) {
  static std::mutex mutex;
  static auto& all = *new std::map<const void*, Codes>;
  const std::lock_guard lock(mutex);
  const auto [at, fresh] = all.try_emplace(container);
  if (fresh) {
    module_loaded();
    read_container(static_cast<const char*>(container), at->second);
  }
  const auto k = at->second.find(kernel);
  return k == at->second.end() ? nullptr : &k->second;
}

std::uint64_t reached_bytes(const KernelCode& k, Holds holds, void* const* parameters, std::size_t first) {
  std::uint64_t bytes = 0;
  if (!parameters) return 0;
  for (std::size_t i = 0; i < std::min(k.parameter_bytes.size(), first); ++i) {
    const ByteRange where = addresses_within(holds, k.parameter_bytes[i]);
    for (std::size_t at = where.begin; at + 8 <= where.end; at += 8) {
      const char* const p = value_at<const char*>(static_cast<const char*>(parameters[i]) + at);
      if (on_device(p)) bytes += rest_of_block(p);
    }
  }
  return bytes;
}

std::uint64_t reached_by_lists(const Lists& l, std::size_t blocks, void* const* parameters) {
  std::uint64_t bytes = 0;
  const auto* const table = static_cast<const char*>(parameters[0]);
  const std::size_t tensors = tensors_of(l, table, blocks);
  for (std::size_t list = 0; list < l.depth; ++list)
    for (std::size_t t = 0; t < tensors; ++t) {
      const char* const p = value_at<const char*>(table + 8 * (list * l.room + t));
      if (on_device(p)) bytes += rest_of_block(p);
    }
  return bytes;
}

int resident_blocks(const KernelCode& k, int threads, std::size_t dynamic_shared_bytes) {
  constexpr int registers = 65536, own_shared_bytes = 1024;
  const int most_warps = threads_of_unit() / 32, most_blocks = blocks_of_unit();
  const int warps = std::max((threads + 31) / 32, 1);
  const int by_registers = registers / std::max(warps * 32 * ((k.registers + 7) / 8 * 8), 1);
  const std::size_t shared = dynamic_shared_bytes + std::size_t(k.shared_bytes) + own_shared_bytes;
  const int by_shared = int((card().shared_bytes + own_shared_bytes) / shared);
  return std::max(0, std::min({most_warps / warps, by_registers, by_shared, most_blocks}));
}

}  // namespace headroom::dry
