#include "engine/safetensors.h"

#include <fcntl.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace headroom::engine {

namespace {

using Json = nlohmann::json;
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
    default: throw Error(Code::unsupported, fmt::format("safetensors: {} is not written", name_of(t)));
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

class File {  // a descriptor that closes
 public:
  File(const std::string& path, int flags) : path_(path), fd_(open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    check(fd_ >= 0, Code::io, "'{}' cannot be opened: {}", path, std::strerror(errno));
  }
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  void write_all(const void* data, std::size_t bytes) {
    const auto* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t n = ::write(fd_, at, bytes);
      if (n < 0 && errno == EINTR) continue;
      check(n > 0, Code::io, "'{}' cannot be written: {}", path_, std::strerror(errno));
      at += n, bytes -= std::size_t(n);
    }
  }
  void settle() {
    const bool settled = fsync(fd_) == 0;  // before errno is read
    check(settled, Code::io, "'{}' cannot be written: {}", path_, std::strerror(errno));
  }

 private:
  std::string path_;
  int fd_;
};

// The header of an open file, and where its tensors begin.
Json header_of(std::ifstream& in, const std::string& path, std::uint64_t& data_at, std::uint64_t& data_bytes) {
  check(bool(in), Code::io, "'{}' cannot be opened: {}", path, std::strerror(errno));
  in.seekg(0, std::ios::end);
  const auto end = std::int64_t(in.tellg());
  const auto size = std::uint64_t(std::max<std::int64_t>(0, end));
  in.seekg(0);
  std::uint64_t length = 0;
  in.read(reinterpret_cast<char*>(&length), 8);
  check(bool(in) && length >= 2 && length <= most_header && 8 + length <= size, Code::io, "'{}' is no safetensors file, or is cut short",
        path);
  std::string text(length, '\0');
  in.read(text.data(), std::streamsize(length));
  Json json = Json::parse(text, nullptr, false);
  check(bool(in) && json.is_object(), Code::io, "'{}' has a damaged header", path);
  data_at = 8 + length, data_bytes = size - data_at;
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
  check(span.size() == 2 && span[0] <= span[1] && span[1] <= data_bytes, Code::io, "'{}': {} lies outside the file", path, name);
  t.at = data_at + span[0], t.bytes = span[1] - span[0];
  double count = 1;  // exact as far as a file can be long
  for (auto n : t.shape) count *= double(n);
  const std::uint64_t each = bytes_of_type(t.type);
  check(each == 0 || count * double(each) == double(t.bytes), Code::io, "'{}': {} {} {} does not take {} bytes", path, name, t.type,
        shape_in_words(t.shape), t.bytes);
  return t;
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
  Json header;
  Checksum sum;
  std::uint64_t at = 0;
  for (const auto& t : tensors) {
    std::vector<std::int64_t> shape(t.tensor.shape.dim.begin(), t.tensor.shape.dim.begin() + t.tensor.shape.rank);
    header[t.name] = {{"dtype", type_name(t.type())}, {"shape", shape}, {"data_offsets", {at, at + t.bytes()}}};
    at += t.bytes();
    sum.add(view.read(t.tensor, t.rest), t.bytes());
  }
  header["__metadata__"] = metadata;
  header["__metadata__"]["checksum"] = sum.text();
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::uint64_t length = text.size();
  const std::string unfinished = path + ".part";
  {
    File file(unfinished, O_WRONLY | O_CREAT | O_TRUNC);
    file.write_all(&length, 8);
    file.write_all(text.data(), text.size());
    for (const auto& t : tensors) file.write_all(view.read(t.tensor, t.rest), t.bytes());
    file.settle();  // the bytes are on the disk before the name points at them
  }
  std::error_code failed;
  std::filesystem::rename(unfinished, path, failed);
  check(!failed, Code::io, "'{}' cannot be put in its place: {}", path, failed.message());
  const auto folder = std::filesystem::path(path).parent_path();
  File(folder.empty() ? "." : folder.string(), O_RDONLY | O_DIRECTORY).settle();
}

SafetensorsHeader read_safetensors_header(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return checked_header(in, path);
}

Metadata read_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors, HostView view) {
  std::ifstream in(path, std::ios::binary);
  SafetensorsHeader h = checked_header(in, path);
  Metadata metadata = std::move(h.metadata);
  std::vector<std::uint64_t> offsets;
  for (const auto& t : tensors) offsets.push_back(place_of(h, t, path));
  // The writer sums tensor by tensor in the order of offsets, so the sum is taken along the same cuts.
  std::map<std::uint64_t, std::uint64_t> spans;
  for (const auto& [name, t] : h.tensors) spans[t.at] = t.bytes;
  Checksum sum;
  std::vector<char> piece(1 << 20);
  for (const auto& [begin, bytes] : spans) {
    in.seekg(std::streamoff(begin));
    for (std::uint64_t left = bytes; left > 0;) {
      const auto n = std::min<std::uint64_t>(left, piece.size());
      in.read(piece.data(), std::streamsize(n));
      check(bool(in), Code::io, "'{}' cannot be read to its end", path);
      sum.add(piece.data(), n);
      left -= n;
    }
  }
  const auto written = metadata.find("checksum");
  check(written == metadata.end() || written->second == sum.text(), Code::io, "'{}' is damaged: its bytes do not match its checksum", path);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    in.seekg(std::streamoff(offsets[i]));
    in.read(view.room(tensors[i].tensor, tensors[i].rest), std::streamsize(tensors[i].bytes()));
    check(bool(in), Code::io, "'{}' cannot be read to its end", path);
    view.write(tensors[i].tensor, tensors[i].rest);
  }
  return metadata;
}

}  // namespace headroom::engine
