#include "dry/read.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"

namespace headroom::dry {

namespace {

// Entries are long enough for what they say they are.
std::uint64_t least_bytes(Kind kind) {
  std::uint64_t bytes = 0;
  const auto look = [&]<class... P>(const std::tuple<P...>*) { ((kind == P::kind ? bytes = sizeof(P) : bytes), ...); };
  look(static_cast<Payloads*>(nullptr));
  return sizeof(Head) + bytes;
}

}  // namespace

Process::Process(const std::string& path) : path_(path) {
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status {};
  check(file && fstat(file.get(), &status) == 0, Code::io, "the record '{}' cannot be read", path);
  const auto size = std::uint64_t(status.st_size);
  check(size >= sizeof head_, Code::bad_argument, "'{}' is no record of a dry run: it has {} bytes", path, size);
  void* const at = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  check(at != MAP_FAILED, Code::io, "the record '{}' cannot be mapped", path);
  begin({static_cast<const char*>(at), [size](const char* p) { munmap(const_cast<char*>(p), size); }}, size);
}

Process Process::of(const std::string& record) {
  Process p;
  p.path_ = "(in memory)";
  const auto kept = std::make_shared<const std::string>(record);
  p.begin({kept, kept->data()}, kept->size());
  return p;
}

void Process::begin(std::shared_ptr<const char> record, std::uint64_t bytes) {
  file_ = std::move(record);
  std::memcpy(&head_, file_.get(), sizeof head_);
  check(std::memcmp(head_.magic, record_magic, sizeof record_magic) == 0, Code::bad_argument, "'{}' is no record of a dry run", path_);
  check(head_.version == record_version && head_.bytes >= sizeof head_ && head_.bytes <= bytes && head_.bytes % 8 == 0, Code::bad_argument,
        "the record '{}' is of version {}; this program reads version {}", path_, head_.version, record_version);
  head_.device[sizeof head_.device - 1] = head_.program[sizeof head_.program - 1] = 0;
  begin_ = file_.get() + head_.bytes;
  bytes_ = bytes - head_.bytes;
  look_through();
}

void Process::look_through() {
  std::uint64_t at = 0;
  while (at + sizeof(Head) <= bytes_) {
    Head head;
    std::memcpy(&head, begin_ + at, sizeof head);
    if (head.kind == Kind::end) break;
    const std::uint64_t bytes = std::uint64_t(head.words) * 8;
    damaged_ = bytes < least_bytes(head.kind) || at + bytes > bytes_;
    if (damaged_) break;
    const char *const payload = begin_ + at + sizeof head, *const end = begin_ + at + bytes;
    if (head.kind == Kind::name) {
      Name name;
      std::memcpy(&name, payload, sizeof name);
      const char* const text = payload + sizeof name;
      damaged_ = name.length > std::uint64_t(end - text);
      if (damaged_) break;
      names_[name.id] = {text, name.length};
    }
    if (head.kind == Kind::stack) {
      Stack stack;
      std::memcpy(&stack, payload, sizeof stack);
      const char* const frames = payload + sizeof stack;
      damaged_ = stack.count > std::uint64_t(end - frames) / sizeof(Frame);
      if (damaged_) break;
      auto& kept = stacks_[stack.id];
      kept.resize(stack.count);
      if (stack.count) std::memcpy(kept.data(), frames, stack.count * sizeof(Frame));
    }
    if (head.kind == Kind::requests) {
      Requests part;
      std::memcpy(&part, payload, sizeof part);
      const char* const first = payload + sizeof part;
      damaged_ = part.count > std::uint64_t(end - first) / sizeof(Request);
      if (damaged_) break;
      auto& all = requests_[part.device];
      const std::size_t before = all.size();
      all.resize(before + part.count);
      if (part.count) std::memcpy(all.data() + before, first, part.count * sizeof(Request));
      in_part_ |= !part.whole;
    }
    at += bytes;
    ++entries_;
  }
  bytes_ = at;  // what is after the end, or makes no sense, is dropped
}

std::string_view Process::name(std::uint32_t id) const {
  const auto at = names_.find(id);
  return at == names_.end() ? std::string_view() : at->second;
}

std::span<const Frame> Process::stack(std::uint32_t id) const {
  const auto at = stacks_.find(id);
  return at == stacks_.end() ? std::span<const Frame>() : std::span<const Frame>(at->second);
}

std::span<const Request> Process::requests(std::uint32_t device) const {
  const auto at = requests_.find(device);
  return at == requests_.end() || in_part_ || damaged_ ? std::span<const Request>() : std::span<const Request>(at->second);
}

std::vector<Process> read_record(const std::string& folder) {
  std::vector<Process> out;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    if (entry.path().extension() != ".dry" || !entry.is_regular_file(ignored)) continue;
    try {
      out.emplace_back(entry.path().string());
    } catch (const Error&) {  // a process that was killed before it had begun
      continue;
    }
  }
  std::ranges::sort(out, {}, [](const Process& p) { return std::pair(p.head().begin_unix_ns, p.head().pid); });
  return out;
}

}  // namespace headroom::dry
