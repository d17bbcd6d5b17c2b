#include "engine/files/safetensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <tuple>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"

namespace headroom::engine {

namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;
constexpr std::uint64_t most_header = 100u << 20;  // the format's own limit

const char* type_name(DType t) {
  switch (t) {
    case DType::f64: return "F64";
    case DType::f32: return "F32";
    case DType::bf16: return "BF16";
    case DType::f16: return "F16";
    case DType::i64: return "I64";
    case DType::i32: return "I32";
    case DType::u8: return "U8";
    default: throw Error(Code::unsupported, fmt::format("safetensors: dtype {} cannot be written", name_of(t)));
  }
}

class Checksum {  // FNV-1a over 64-bit words: to notice damage, not malice
 public:
  void add(const void* data, std::size_t bytes) {
    const auto* at = static_cast<const unsigned char*>(data);
    for (; bytes >= 8; at += 8, bytes -= 8) {
      std::uint64_t word;
      std::memcpy(&word, at, 8);
      sum_ = (sum_ ^ word) * 0x100000001b3ull;
      sum_ ^= sum_ >> 29;
    }
    for (; bytes > 0; ++at, --bytes) sum_ = (sum_ ^ *at) * 0x100000001b3ull;
  }
  std::string text() const { return fmt::format("{:016x}", sum_); }

 private:
  std::uint64_t sum_ = 0xcbf29ce484222325ull;
};

// The checksum of all that the header says but this checksum itself.
std::string header_checksum(Json header) {
  header["__metadata__"].erase("header_checksum");
  const std::string text = text_of_json(header);
  Checksum sum;
  sum.add(text.data(), text.size());
  return sum.text();
}

std::ifstream opened(const std::string& path) {
  std::error_code ignored;
  if (fs::exists(path, ignored))  // a pipe without a writer would hold us
    if (const std::string why = why_no_file(path); !why.empty()) throw Error(Code::bad_argument, why);
  std::ifstream in(path, std::ios::binary);
  check(bool(in), Code::io, "'{}' cannot be opened: {}", path, std::strerror(errno));
  return in;
}

// The header of an open file, and where its tensors begin.
Json header_of(std::ifstream& in, const std::string& path, std::uint64_t& data_at, std::uint64_t& data_bytes) {
  in.seekg(0, std::ios::end);
  const auto end = std::int64_t(in.tellg());
  const auto size = std::uint64_t(std::max<std::int64_t>(0, end));
  in.seekg(0);
  std::uint64_t length = 0;
  in.read(reinterpret_cast<char*>(&length), 8);
  check(bool(in) && length >= 2 && length <= most_header && 8 + length <= size, Code::io, "'{}' is not a safetensors file, or is truncated",
        path);
  std::string text(length, '\0');
  in.read(text.data(), std::streamsize(length));
  Json json = parse_json(text, fmt::format("'{}' has a damaged header: it", path), Code::io);
  check(bool(in) && json.is_object(), Code::io, "'{}' has a damaged header", path);
  data_at = 8 + length;
  data_bytes = size - data_at;
  return json;
}

std::uint64_t bytes_of_type(const std::string& type) {  // 0: one that is not known here
  constexpr std::pair<std::string_view, std::uint64_t> sizes[] = {{"F64", 8}, {"F32", 4},  {"BF16", 2},    {"F16", 2},
                                                                  {"I64", 8}, {"I32", 4},  {"I16", 2},     {"I8", 1},
                                                                  {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  for (const auto& [name, bytes] : sizes)
    if (name == type) return bytes;
  return 0;
}

StoredTensor stored_tensor(const std::string& name, const Json& entry, std::uint64_t data_at, std::uint64_t data_bytes,
                           const std::string& path) {
  StoredTensor t;
  std::vector<std::uint64_t> span;
  const auto whole = [&](const Json& number) {
    constexpr auto most = std::uint64_t(std::numeric_limits<std::int64_t>::max());
    check(number.is_number_unsigned() && number.get<std::uint64_t>() <= most, Code::io, "'{}': the entry of {} is damaged", path, name);
    return number.get<std::uint64_t>();
  };
  try {
    t.type = entry.at("dtype").get<std::string>();
    for (const Json& size : entry.at("shape").get_ref<const Json::array_t&>()) t.shape.push_back(std::int64_t(whole(size)));
    for (const Json& offset : entry.at("data_offsets")) span.push_back(whole(offset));
  } catch (const Json::exception&) { throw Error(Code::io, fmt::format("'{}': the entry of {} is damaged", path, name)); }
  check(span.size() == 2 && span[0] <= span[1] && span[1] <= data_bytes, Code::io, "'{}': {} is outside the file", path, name);
  t.at = data_at + span[0];
  t.bytes = span[1] - span[0];
  double count = 1;  // exact as far as a file can be long
  for (auto n : t.shape) count *= double(n);
  const std::uint64_t each = bytes_of_type(t.type);
  check(each == 0 || count * double(each) == double(t.bytes), Code::io, "'{}': {} {} {} does not take {} bytes", path, name, t.type,
        shape_in_words(t.shape), t.bytes);
  return t;
}

// In the order of their bytes, which is the order that they were written in.
std::vector<std::pair<std::uint64_t, std::string>> in_order(const SafetensorsHeader& h) {
  std::vector<std::pair<std::uint64_t, std::string>> all;
  for (const auto& [name, t] : h.tensors) all.emplace_back(t.at, name);
  std::sort(all.begin(), all.end(), [&](const auto& a, const auto& b) {  // those of no bytes stand before the one that begins there
    const auto key = [&](const auto& one) { return std::tuple(one.first, h.tensors.at(one.second).bytes, one.second); };
    return key(a) < key(b);
  });
  return all;
}

void check_in_order(const SafetensorsHeader& h, std::uint64_t data_at, std::uint64_t data_bytes, const std::string& path) {
  std::uint64_t end = data_at;
  for (const auto& [at, name] : in_order(h)) {
    check(at >= end, Code::io, "'{}': {} overlaps another tensor", path, name);
    check(at == end, Code::io, "'{}': {} bytes before {} belong to no tensor", path, at - end, name);
    end = at + h.tensors.at(name).bytes;
  }
  check(end == data_at + data_bytes, Code::io, "'{}': {} bytes at its end belong to no tensor", path, data_at + data_bytes - end);
}

SafetensorsHeader checked_header(std::ifstream& in, const std::string& path) {
  std::uint64_t data_at = 0, data_bytes = 0;
  const Json json = header_of(in, path, data_at, data_bytes);
  SafetensorsHeader h;
  for (const auto& [name, entry] : json.items()) {
    if (name != "__metadata__") {
      h.tensors[name] = stored_tensor(name, entry, data_at, data_bytes, path);
      continue;
    }
    check(entry.is_object(), Code::io, "'{}' has damaged metadata", path);
    for (const auto& [key, value] : entry.items()) {
      check(value.is_string(), Code::io, "'{}' has damaged metadata", path);
      h.metadata[key] = value.get<std::string>();
    }
  }
  check_in_order(h, data_at, data_bytes, path);
  if (const auto written = h.metadata.find("header_checksum"); written != h.metadata.end())
    check(written->second == header_checksum(json), Code::io, "'{}' is damaged: its header does not match its checksum", path);
  return h;
}

std::uint64_t place_of(const SafetensorsHeader& h, const NamedTensor& t, const std::string& path) {
  const auto at = h.tensors.find(t.name);
  check(at != h.tensors.end(), Code::io, "'{}' holds no tensor {}", path, t.name);
  const auto& dim = t.tensor.shape.dim;
  const std::vector<std::int64_t> mine(dim.begin(), dim.begin() + t.tensor.shape.rank);
  check(at->second.shape == mine && at->second.type == type_name(t.type()), Code::io, "'{}': {} is {} {}, this model's is {} {}", path,
        t.name, at->second.type, shape_in_words(at->second.shape), type_name(t.type()), shape_in_words(mine));
  return at->second.at;
}

}  // namespace

std::string shape_in_words(const std::vector<std::int64_t>& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

void write_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors, const Metadata& metadata, HostView view) {
  std::vector<char> brought;
  const auto bytes_of = [&](const NamedTensor& t) {
    if (!t.bring) return view.read(t.tensor, t.rest);
    brought = t.bring();
    return static_cast<const char*>(brought.data());
  };
  Json header;
  Checksum sum;
  std::uint64_t at = 0;
  for (const auto& t : tensors) {
    std::vector<std::int64_t> shape(t.tensor.shape.dim.begin(), t.tensor.shape.dim.begin() + t.tensor.shape.rank);
    header[t.name] = {{"dtype", type_name(t.type())}, {"shape", shape}, {"data_offsets", {at, at + t.bytes()}}};
    at += t.bytes();
    sum.add(bytes_of(t), t.bytes());
  }
  header["__metadata__"] = metadata;
  header["__metadata__"]["checksum"] = sum.text();
  header["__metadata__"]["header_checksum"] = header_checksum(header);
  std::string text = text_of_json(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  AtomicFile file(path);
  file.write(&length, 8);
  file.write(text.data(), text.size());
  for (const auto& t : tensors) file.write(bytes_of(t), t.bytes());
  file.put_in_place();
}

SafetensorsHeader read_safetensors_header(const std::string& path) {
  std::ifstream in = opened(path);
  return checked_header(in, path);
}

Metadata read_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors, HostView view) {
  std::ifstream in = opened(path);
  const SafetensorsHeader h = checked_header(in, path);
  std::vector<std::uint64_t> offsets;
  for (const auto& t : tensors) offsets.push_back(place_of(h, t, path));
  // The writer sums tensor by tensor in the order of offsets, so the sum is taken along the same cuts.
  Checksum sum;
  std::vector<char> piece(1 << 20);
  for (const auto& [begin, name] : in_order(h)) {
    in.seekg(std::streamoff(begin));
    for (std::uint64_t left = h.tensors.at(name).bytes; left > 0;) {
      const auto n = std::min<std::uint64_t>(left, piece.size());
      in.read(piece.data(), std::streamsize(n));
      check(bool(in), Code::io, "'{}' cannot be read completely", path);
      sum.add(piece.data(), n);
      left -= n;
    }
  }
  const auto written = h.metadata.find("checksum");
  check(written != h.metadata.end(), Code::io, "'{}' has no checksum: it is damaged, or another program wrote it", path);
  check(written->second == sum.text(), Code::io, "'{}' is damaged: its bytes do not match its checksum", path);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const NamedTensor& t = tensors[i];
    std::vector<char> taken(t.take ? t.bytes() : 0);
    in.seekg(std::streamoff(offsets[i]));
    in.read(t.take ? taken.data() : view.room(t.tensor, t.rest), std::streamsize(t.bytes()));
    check(bool(in), Code::io, "'{}' cannot be read completely", path);
    t.take ? t.take(taken.data()) : view.write(t.tensor, t.rest);
  }
  return h.metadata;
}

}  // namespace headroom::engine
