#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/text.h"
#include "studies/forecast/run.h"

namespace headroom::studies {

std::string advice_on(const DryRun& run, int cards) {
  if (run.says("no cuda gpus are available")) return "something sets CUDA_VISIBLE_DEVICES for it, so that it sees no card";
  if (run.says("Found no NVIDIA driver") || run.says("Error 500: named symbol not found"))
    return "it starts Python without the environment that it has, LD_PRELOAD among it (a cleared environment, sudo, a container); let it "
           "pass "
           "that on";
  if (run.says("Duplicate GPU detected"))
    return cards <= 1 ? "two ranks are on one card; --gpus N shows N GPUs to the program, here it is shown one"
                      : "two ranks are on one card; each takes its own by torch.cuda.set_device(int(os.environ['LOCAL_RANK']))";
  if (!run.says("invalid device ordinal")) return "";
  const int shown = std::max(1, cards);
  return shown == 1 ? "--gpus 2 shows two GPUs to the program; here it is shown one"
                    : fmt::format("--gpus {} shows {} GPUs to the program; here it is shown {}", shown + 1, shown + 1, shown);
}

std::string name_of(const std::vector<std::string>& program) {
  if (program.empty()) return "";
  const std::string file = program[0].substr(program[0].rfind('/') + 1);
  for (std::size_t i = 1; file.starts_with("python") && i + 1 < program.size() && program[i].starts_with('-'); ++i)
    if (program[i] == "-m" && !program[i + 1].starts_with("torch.distributed.") && !program[i + 1].starts_with("accelerate."))
      return program[i + 1];
  const auto script = std::ranges::find_if(
      program, [](const std::string& word) { return word.ends_with(".py") || word.ends_with(".sh") || word.ends_with(".ipynb"); });
  return script == program.end() ? program[0] : *script;
}

void refuse_without_bytes(const DryRun& run, const std::vector<std::string>& program, int cards) {
  const std::string name = name_of(program);
  if (run.ended.asked)
    throw Error(Code::interrupted, fmt::format("{} before '{}' used a card: nothing is known of it yet", stopped_by(), name));
  for (const ProcessStory& p : run.processes)
    if (!p.static_runtimes.empty())
      throw Error(Code::unsupported,
                  fmt::format("'{}' brings a CUDA runtime of its own, in {}: its calls cannot be answered; use a build that "
                              "links libcudart.so",
                              name, joined(p.static_runtimes)));
  if (const char* const cards = std::getenv("CUDA_VISIBLE_DEVICES"); cards && !std::isdigit(static_cast<unsigned char>(*cards)))
    throw Error(
        Code::unsupported,
        fmt::format("CUDA_VISIBLE_DEVICES={} shows no card to '{}': leave it out, as by env -u CUDA_VISIBLE_DEVICES headroom forecast",
                    cards, name));
  if (name.ends_with(".ipynb") && is_regular_file(name))
    throw Error(Code::bad_argument, fmt::format("Python cannot run '{}': {}", name, why_no_notebook(name)));
  const auto without_cuda = std::ranges::find_if(run.processes, [](const ProcessStory& p) { return !p.torch_with_cuda; });
  if (without_cuda != run.processes.end() || run.says("not compiled with cuda"))
    throw Error(
        Code::unsupported,
        fmt::format("its PyTorch{} is a build without CUDA, which has no CUDA allocator; install the CUDA build, which needs no GPU: "
                    "pip install torch --index-url https://download.pytorch.org/whl/cu130",
                    without_cuda == run.processes.end() ? "" : " " + without_cuda->torch));
  if (run.says("can't open file") && name.ends_with(".py"))  // a launcher's own error would hide it
    check(std::filesystem::exists(name), Code::bad_argument, "{}; name the script as it is reached from here", why_no_file(name));
  if (run.ended.exit_code != 0) {
    const std::string last = run.last_line();
    const std::string hint = advice_on(run, cards);
    const std::string advice = last.ends_with("No module named 'torch'") ? "; name the Python that has PyTorch, as .venv/bin/python"
                               : hint.empty()                            ? ""
                                                                         : "; " + hint;
    throw Error(Code::io, fmt::format("'{}' ended before it used a card, with exit code {}{}{}", name, run.ended.exit_code,
                                      last.empty() ? "" : ": " + shortened(last, 160), advice));
  }
  const auto with_torch = std::ranges::find_if(run.processes, [](const ProcessStory& p) { return !p.torch.empty(); });
  if (with_torch != run.processes.end() && with_torch->visible == 0)
    throw Error(
        Code::unsupported,
        fmt::format("'{}' sets CUDA_VISIBLE_DEVICES itself, so that it sees no card: it computed on the CPU; take that line out for "
                    "the forecast",
                    name));
  if (with_torch != run.processes.end())
    throw Error(
        Code::unsupported,
        fmt::format("'{}' ran to its end with PyTorch {} and allocated nothing on a card: it computed on the CPU; move its model and "
                    "data to the card, as by .to('cuda'), or give it the option that does",
                    name, with_torch->torch));
  throw Error(
      Code::unsupported,
      fmt::format("'{}' ran to its end and allocated nothing on a card, and no Python in it was seen to import PyTorch; give the command "
                  "that trains, without Python's options -I and -E, which switch the observer off",
                  name));
}

}  // namespace headroom::studies
