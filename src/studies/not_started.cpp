// What people write in place of a program, and what they mean.
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <system_error>

#include "base/file.h"
#include "base/text.h"
#include "studies/launch.h"

namespace headroom::studies {

namespace {

bool sets_a_variable(const std::string& word) {  // CUDA_VISIBLE_DEVICES=0
  const auto equals = word.find('=');
  return equals != word.npos && equals > 0 && word.find('/') > equals;
}

std::string with_before(const char* word, const std::vector<std::string>& command) {
  return fmt::format("write -- {} {}", word, shortened(as_typed_in_a_shell(command), 60));
}

}  // namespace

std::vector<std::string> as_meant(std::vector<std::string> command) {
  if (command.empty() || !command[0].ends_with(".py") || !is_regular_file(command[0])) return command;
  if (command[0].find('/') == command[0].npos || access(command[0].c_str(), X_OK) != 0) command.insert(command.begin(), "python3");
  return command;
}

bool can_be_found(const std::string& program) {
  if (program.find('/') != program.npos) return is_regular_file(program);
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path ? path : "/bin:/usr/bin");
  for (std::string folder; std::getline(folders, folder, ':');)
    if (is_regular_file((folder.empty() ? "." : folder) + "/" + program)) return true;
  return false;
}

std::string why_not_started(const std::vector<std::string>& command, int error, const std::string& advice) {
  const std::string& word = command.front();
  const bool of_path = word.find('/') == word.npos, here = is_regular_file(word);
  if (sets_a_variable(word)) return "it sets a variable; " + with_before("env", command);
  if (word.find(' ') != word.npos && !here) return fmt::format("it is one word, with blanks in it; leave the quotes out: -- {}", word);
  if (here && word.ends_with(".ipynb")) return why_no_notebook(word);
  if (here && word.ends_with(".py")) return "it is a Python file; " + with_before("python3", command);
  if (here && word.ends_with(".sh")) return "it is a script of a shell; " + with_before("sh", command);
  if (here && error == EACCES) return fmt::format("it may not be executed; chmod +x {} allows that", as_typed_in_a_shell(word));
  if (std::error_code none; !here && std::filesystem::is_directory(word, none)) return "it is a folder; name a program in it";
  if (here && error == ENOENT && !of_path) return "what its first line names to run it is not there";
  if (error == ENOENT && of_path && word.ends_with(".py")) return "there is no such file here; give its path";
  if (error == ENOENT) return fmt::format("{}; {}", of_path ? "no folder of PATH has it" : "there is no such file", advice);
  return fmt::format("{}; {}", std::strerror(error), advice);
}

std::string why_no_notebook(const std::string& file) {
  const std::string script = as_typed_in_a_shell(file.substr(0, file.size() - 6) + ".py");
  return fmt::format("it is a notebook; jupyter nbconvert --to script {} writes {}, and then -- python3 {}", as_typed_in_a_shell(file),
                     script, script);
}

}  // namespace headroom::studies
