#include "studies/forecast/source_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>

namespace headroom::studies {

namespace {

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }
bool installed(std::string_view file) { return contains(file, "site-packages/") || contains(file, "dist-packages/"); }
bool of_python(std::string_view file) { return file.starts_with('<') || (contains(file, "/lib/python3") && !installed(file)); }
bool of_torch(std::string_view file) { return contains(file, "-packages/torch/") || contains(file, "-packages/torch_"); }
bool of_headroom(std::string_view file) { return contains(file, "headroom_dry") || contains(file, "/headroom/"); }

}  // namespace

std::string shown_file(std::string_view file) {
  for (const std::string_view packages : {"site-packages/", "dist-packages/"})
    if (const auto at = file.rfind(packages); at != std::string_view::npos) return std::string(file.substr(at + packages.size()));
  std::error_code ignored;
  const std::string here = std::filesystem::current_path(ignored).string() + "/";
  return std::string(file.starts_with(here) ? file.substr(here.size()) : file);
}

const Lines& LinesOf::operator()(std::uint32_t stack) {
  const auto [at, fresh] = known_.try_emplace(stack);
  if (fresh) at->second = look(stack);
  return at->second;
}

std::string LinesOf::words(const dry::Frame& f) const { return fmt::format("{}:{}", shown_file(process_.name(f.file)), f.line); }

Lines LinesOf::look(std::uint32_t stack) const {
  Lines l;
  const auto frames = process_.stack(stack);
  for (const dry::Frame& f : frames) {
    const std::string_view file = process_.name(f.file);
    if (of_python(file) || of_headroom(file)) continue;
    if (l.line.empty() && !of_torch(file)) l.line = words(f);
    if (l.own.empty() && !installed(file)) l.own = words(f);
  }
  if (l.line.empty())  // PyTorch's alone
    for (const dry::Frame& f : frames)
      if (l.line.empty() && !of_headroom(process_.name(f.file))) l.line = words(f);
  return l;
}

std::string folded(std::string_view module) {
  std::string out;
  for (std::size_t i = 0; i < module.size();) {
    const auto dot = std::min(module.find('.', i), module.size());
    const auto part = module.substr(i, dot - i);
    const bool number = !part.empty() && std::all_of(part.begin(), part.end(), [](unsigned char c) { return std::isdigit(c); });
    if (!out.empty()) out += '.';
    out += number ? std::string_view("*") : part;
    i = dot + 1;
  }
  return out;
}

}  // namespace headroom::studies
