#include "cli/completion.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"

namespace headroom::cli {

namespace {

std::vector<std::string> split_at(const std::string& text, char at) {
  std::vector<std::string> parts(1);
  for (const char c : text)
    if (c == at)
      parts.emplace_back();
    else
      parts.back() += c;
  return parts;
}

// What can be typed of a word of a shape: all of "fp32" and "2.7B", "groups:" of "groups:K:LEVEL", nothing of "N" and "FILE".
std::string typed(const std::string& word) {
  if (word == "...") return "";
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (!std::isupper(static_cast<unsigned char>(word[i])) || (i > 0 && std::isdigit(static_cast<unsigned char>(word[i - 1])))) continue;
    return i > 0 && word[i - 1] == ':' ? word.substr(0, i) : "";
  }
  return word;
}

// "fp32,bf16" and "plain|flash" say what a value may be; "N,N,..." and "FILE" do not.
void read_shape(OptionWords& o) {
  o.file = o.shape == "FILE";
  o.folder = o.shape == "DIR";
  o.list = o.shape.find(',') != std::string::npos;
  const std::vector<std::string> parts = split_at(o.shape, o.list ? ',' : '|');
  if (parts.size() < 2) return;
  for (const std::string& part : parts)
    if (std::string word = typed(part); !word.empty() && std::find(o.words.begin(), o.words.end(), word) == o.words.end())
      o.words.push_back(std::move(word));
  o.or_file = !o.words.empty() && parts.back() == "FILE";
}

OptionWords words_of(const CLI::Option& option) {
  OptionWords o;
  o.about = option.get_description();
  for (const auto& name : option.get_snames()) o.names.push_back("-" + name);
  for (const auto& name : option.get_lnames()) o.names.push_back("--" + name);
  if (option.get_items_expected_max() > 0) o.shape = option.get_type_name(), o.usual = option.get_default_str();
  read_shape(o);
  return o;
}

std::vector<std::string> names_in(std::span<const CommandWords> commands) {
  std::vector<std::string> names;
  for (const CommandWords& c : commands) names.push_back(c.name);
  return names;
}

std::vector<std::string> option_names(const CommandWords& c) {
  std::vector<std::string> names;
  for (const OptionWords& o : c.options) names.insert(names.end(), o.names.begin(), o.names.end());
  return names;
}

// Every command and topic, with the words that lead there: visit({"memory", "model"}, command, topic). Options of a command may follow its
// topic.
template <class Visit>
void each_place(std::span<const CommandWords> commands, Visit visit) {
  for (const CommandWords& c : commands) {
    visit(std::vector{c.name}, c);
    for (const CommandWords& t : c.topics) {
      CommandWords whole = t;
      for (const OptionWords& o : c.options)
        if (std::none_of(t.options.begin(), t.options.end(), [&](const OptionWords& its) { return its.names == o.names; }))
          whole.options.push_back(o);
      visit(std::vector{c.name, t.name}, whole);
    }
  }
}

std::string in_quotes(const std::string& text) {  // as a shell quotes
  std::string out = "'";
  for (const char c : text) c == '\'' ? out += "'\\''" : out += c;
  return out + "'";
}

bool has_values(const OptionWords& o) { return !o.names.empty() && !o.shape.empty(); }

}  // namespace

CommandWords words_of(const CLI::App& app, const Command& command) {
  CommandWords c{command.name, command.about, app.get_footer(), {}, {}};
  for (const CLI::Option* o : app.get_options({})) c.options.push_back(words_of(*o));
  for (const CLI::App* topic : app.get_subcommands({}))
    c.topics.push_back(words_of(*topic, {topic->get_name().c_str(), topic->get_description().c_str(), nullptr}));
  return c;
}

std::string bash_completion(std::span<const CommandWords> commands) {
  std::string cases;
  each_place(commands, [&](const std::vector<std::string>& path, const CommandWords& c) {
    cases += fmt::format("    {})\n      words='{}'\n      options='{}'\n      case \"$before\" in\n", in_quotes(joined(path, " ")),
                         joined(names_in(c.topics), " "), joined(option_names(c), " "));
    for (const OptionWords& o : c.options) {
      if (!has_values(o)) continue;
      cases += fmt::format("        {}) {} ;;\n", joined(o.names, "|"),
                           o.file            ? "kind=file"
                           : o.folder        ? "kind=folder"
                           : o.words.empty() ? "kind=any"
                                             : fmt::format("kind={}{} words='{}'", o.list ? "list" : "word", o.or_file ? " or_file=1" : "",
                                                           joined(o.words, " ")));
    }
    cases += "      esac ;;\n";
  });
  return fmt::format(R"(# Completion of headroom for bash, made by `headroom completion bash`.
_headroom() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} before='' at=0 path='' word words='' options='' kind='' first='' or_file=''
  ((COMP_CWORD > 0)) && before=${{COMP_WORDS[COMP_CWORD-1]}}
  if [[ $current == '=' ]]; then current=''; elif [[ $before == '=' ]] && ((COMP_CWORD > 1)); then before=${{COMP_WORDS[COMP_CWORD-2]}}; fi
  for ((at = 1; at < COMP_CWORD; at++)); do
    word=${{COMP_WORDS[at]}}
    case "$path $word" in
{}    esac
  done
  COMPREPLY=()
  case "$path" in
    '') words='{}' options='--help --version' ;;
{}  esac
  case "$kind" in
    any) return ;;
    file) mapfile -t COMPREPLY < <(compgen -f -- "$current"); return ;;
    folder) mapfile -t COMPREPLY < <(compgen -d -- "$current"); return ;;
    list)
      [[ $current == *,* ]] && first=${{current%,*}},
      mapfile -t COMPREPLY < <(compgen -P "$first" -W "$words" -- "${{current##*,}}"); return ;;
    word)
      mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
      [[ ${{#COMPREPLY[@]}} == 0 && $or_file ]] && mapfile -t COMPREPLY < <(compgen -f -- "$current")
      [[ ${{#COMPREPLY[@]}} == 1 && $COMPREPLY == *: ]] && compopt -o nospace 2> /dev/null
      return ;;
  esac
  [[ $current == -* ]] && words=$options
  if [[ -z $words ]]; then mapfile -t COMPREPLY < <(compgen -f -- "$current"); return; fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
}}
complete -o bashdefault -o filenames -F _headroom headroom
)",
                     [&] {
                       std::string lines;
                       each_place(commands, [&](const std::vector<std::string>& path, const CommandWords&) {
                         const std::string before = path.size() > 1 ? path[0] : "";
                         lines +=
                             fmt::format("      {}) path={} ;;\n", in_quotes(before + " " + path.back()), in_quotes(joined(path, " ")));
                       });
                       return lines;
                     }(),
                     joined(names_in(commands), " "), cases);
}

std::string zsh_completion(std::span<const CommandWords> commands) {
  const auto described = [](const std::string& name, const std::string& about) {  // name:about, of _describe
    std::string escaped;
    for (const char c : name) c == ':' ? escaped += "\\:" : escaped += c;
    return in_quotes(escaped + ":" + about);
  };
  const auto spec = [](const std::string& name, const OptionWords& o) {  // one line for zsh's _arguments
    std::string about, value;
    for (const char c : o.about) {
      if (c == '[' || c == ']' || c == ':' || c == '\\') about += '\\';
      about += c;
    }
    if (!o.shape.empty()) {
      std::string words;
      for (const std::string& w : o.words)
        for (const char c : (words.empty() ? "" : " ") + w) c == ':' ? words += "\\:" : words += c;
      std::string shape;
      for (const char c : o.shape) c == ':' ? shape += "\\:" : shape += c;
      value = fmt::format(":{}:{}", shape,
                          o.file            ? "_files"
                          : o.folder        ? "_files -/"
                          : o.words.empty() ? " "
                          : o.list          ? fmt::format("_sequence compadd - {}", words)
                                            : fmt::format("({})", words));
    }
    return in_quotes(fmt::format("{}[{}]{}", name, about, value));
  };
  std::string functions, top, dispatch;
  for (const CommandWords& c : commands) {
    top += " " + described(c.name, c.about);
    dispatch += fmt::format("    {0}) _headroom_{0} ;;\n", c.name);
  }
  each_place(commands, [&](const std::vector<std::string>& path, const CommandWords& c) {
    functions += fmt::format("_headroom_{}() {{\n", joined(path, "_"));
    if (!c.topics.empty()) {
      std::string topics, calls;
      for (const CommandWords& t : c.topics) {
        topics += " " + described(t.name, t.about);
        calls += fmt::format("      {}) shift words; ((CURRENT--)); _headroom_{}_{}; return ;;\n", t.name, path[0], t.name);
      }
      functions += fmt::format(
          "  if ((CURRENT > 2)); then\n    case \"$words[2]\" in\n{}    esac\n  fi\n  local -a topics=({})\n"
          "  ((CURRENT == 2)) && _describe topic topics\n",
          calls, topics);
    }
    functions += "  _arguments";
    for (const OptionWords& o : c.options)
      for (const std::string& name : o.names) functions += " \\\n    " + spec(name, o);
    functions += " \\\n    '*:file:_files'\n}\n";
  });
  return fmt::format(
      "#compdef headroom\n# Completion of headroom for zsh, made by `headroom completion zsh`.\n{}_headroom() {{\n"
      "  local -a commands=({})\n  if ((CURRENT == 2)); then _describe command commands; return; fi\n"
      "  shift words; ((CURRENT--))\n  case \"$words[1]\" in\n{}  esac\n}}\nif [[ $funcstack[1] == _headroom ]]; then _headroom; else "
      "compdef "
      "_headroom headroom; fi\n",
      functions, top, dispatch);
}

std::string fish_completion(std::span<const CommandWords> commands) {
  const auto quoted = [](const std::string& text) {  // fish reads \ and ' in single quotes
    std::string out = "'";
    for (const char c : text) {
      if (c == '\'' || c == '\\') out += '\\';
      out += c;
    }
    return out + "'";
  };
  std::string out = "# Completion of headroom for fish, made by `headroom completion fish`.\ncomplete -c headroom -f\n";
  for (const CommandWords& c : commands)
    out += fmt::format("complete -c headroom -n __fish_use_subcommand -a {} -d {}\n", c.name, quoted(c.about));
  for (const CommandWords& c : commands) {
    const std::string topics = joined(names_in(c.topics), " ");
    for (const CommandWords& t : c.topics)
      out += fmt::format("complete -c headroom -n {} -a {} -d {}\n",
                         quoted(fmt::format("__fish_seen_subcommand_from {}; and not __fish_seen_subcommand_from {}", c.name, topics)),
                         t.name, quoted(t.about));
  }
  each_place(commands, [&](const std::vector<std::string>& path, const CommandWords& c) {
    std::vector<std::string> seen;
    for (const std::string& word : path) seen.push_back("__fish_seen_subcommand_from " + word);
    for (const CommandWords& other : commands)  // `attention` is a command, and a topic of others
      for (const CommandWords& t : other.topics)
        if (path.size() == 1 && t.name == c.name) seen.push_back("not __fish_seen_subcommand_from " + other.name);
    for (const OptionWords& o : c.options) {
      if (o.names.empty() || (path.size() == 1 && !c.topics.empty())) continue;  // a command with topics: each of them has its options too
      out += fmt::format("complete -c headroom -n {}", quoted(joined(seen, "; and ")));
      for (const std::string& name : o.names) out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (!o.shape.empty())
        out += o.file || o.folder ? " -rF" : o.words.empty() ? " -x" : fmt::format(" -xa {}", quoted(joined(o.words, " ")));
      out += fmt::format(" -d {}\n", quoted(o.about));
    }
  });
  return out;
}

std::string manual(std::span<const CommandWords> commands, std::string_view overview) {
  const auto safe = [](std::string_view text) {  // troff takes a \ and a line that begins with . or ' as its own, and knows ASCII
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const char c = text[i];
      if (const auto first = std::uint8_t(c); first >= 0xc0) {  // the first byte of a character of UTF-8
        const std::size_t more = first >= 0xf0 ? 3 : first >= 0xe0 ? 2 : 1;
        std::uint32_t code = first & (0x3fu >> more);
        for (std::size_t k = 1; k <= more && i + k < text.size(); ++k) code = code << 6 | (std::uint8_t(text[i + k]) & 0x3fu);
        out += fmt::format("\\[u{:04X}]", code);
        i += more;
        continue;
      }
      if ((c == '.' || c == '\'') && (out.empty() || out.back() == '\n')) out += "\\&";
      if (c == '\\')
        out += "\\e";
      else if (c == '-')
        out += "\\-";
      else
        out += c;
      if (c == ',' || c == '|') out += "\\:";  // a line may break here: lists of words are wider than a page
    }
    return out;
  };
  const auto options = [&](const CommandWords& c) {
    std::string out;
    for (const OptionWords& o : c.options) {
      const std::string names = joined(o.names, ", ");
      out += fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", safe(names), o.shape.empty() ? "" : fmt::format(" \\fI{}\\fR", safe(o.shape)),
                         safe((o.about.empty() ? names : o.about) + (o.usual.empty() ? "" : fmt::format(" [{}]", o.usual))));
    }
    return out;
  };
  std::string out = fmt::format(
      ".TH HEADROOM 1 \"\" \"headroom {}\" \"User Commands\"\n.ad l\n.SH NAME\nheadroom \\- bytes and milliseconds of training "
      "transformers\n"
      ".SH SYNOPSIS\n.B headroom\n.I command\n[\\fItopic\\fR] [\\fIoptions\\fR]\n.SH DESCRIPTION\n.nf\n{}.fi\n",
      HEADROOM_VERSION, safe(overview));
  const auto section = [&](const std::string& heading, const char* kind, const CommandWords& c) {
    out += fmt::format("{} \"{}\"\n{}.\n{}", kind, safe(heading), safe(c.about), options(c));
    if (!c.footer.empty()) out += fmt::format(".PP\n.nf\n{}\n.fi\n", safe(c.footer));
  };
  for (const CommandWords& c : commands) {
    section("headroom " + c.name, ".SH", c);
    for (const CommandWords& t : c.topics) section("headroom " + c.name + " " + t.name, ".SS", t);
  }
  return out;
}

}  // namespace headroom::cli
