#include "command/completion.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "command/described_options.h"

namespace aten_recompute::command {
namespace {

std::string joined(const std::vector<std::string>& words, std::string_view between) {
  std::string text;
  for (const auto& word : words)
    text += (text.empty() ? "" : std::string(between)) + word;
  return text;
}

// An input may be a file, or typed.
bool takes_file(const DescribedOption& option) {
  return option.value == "FILE" || option.value == "VALUE";
}

// Returns the name with which functions of shells begin.
std::string function_name(const CLI::App& program) {
  auto name = "_" + program.get_name();
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

std::string option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const auto& option : described_options(app)) {
    if (!option.is_positional)
      names.push_back(option.names.back());
  }
  return joined(names, " ");
}

// Appends, for each option that takes a value, a case that completes it.
void add_bash_values(std::string& script, const std::string& function,
                     const std::string& subcommand, const CLI::App& app) {
  for (const auto& option : described_options(app)) {
    if (option.is_positional || option.value.empty())
      continue;
    std::vector<std::string> patterns;
    for (const auto& name : option.names)
      patterns.push_back(subcommand + "," + name);
    script += "    " + joined(patterns, " | ") + ") ";
    if (!option.choices.empty())
      script += function + "_words '" + joined(option.choices, " ") + "'; ";
    else if (takes_file(option))
      script += function + "_files; ";
    script += "return ;;\n";
  }
}

// Returns text for a description in zsh: one clause, within single quotes and brackets.
std::string zsh_text(std::string text) {
  for (const char* end : {"; ", ": ", ". "})
    text.erase(std::min(text.find(end), text.size()));
  std::string quoted;
  for (const char c : text) {
    if (c == '\'')
      quoted += "'\\''";
    else if (c == '[' || c == ']' || c == ':' || c == '\\')
      quoted += std::string("\\") + c;
    else
      quoted += c;
  }
  return quoted;
}

// Returns what zsh does about the value of an option or a positional argument.
std::string zsh_action(const DescribedOption& option) {
  if (!option.choices.empty())
    return "(" + joined(option.choices, " ") + ")";
  return takes_file(option) ? "_files" : " ";
}

// Returns the arguments of _arguments, one in each line.
std::string zsh_arguments(const CLI::App& app, const std::string& indentation) {
  std::string lines;
  int place = 0;
  for (const auto& option : described_options(app)) {
    lines += " \\\n" + indentation;
    if (option.is_positional) {
      lines += "'" + std::to_string(++place) + ":" + zsh_text(option.names.front()) + ":" +
               zsh_action(option) + "'";
      continue;
    }
    const auto value =
        option.value.empty() ? "" : ":" + zsh_text(option.value) + ":" + zsh_action(option);
    const auto text = "[" + zsh_text(option.help) + "]" + value + "'";
    if (option.names.size() == 1 && !option.is_repeatable) {
      lines += "'" + option.names.front() + (value.empty() ? "" : "=") + text;
      continue;
    }
    lines += option.is_repeatable ? "'*'" : "'(" + joined(option.names, " ") + ")'";
    std::vector<std::string> names;
    for (const auto& name : option.names)
      names.push_back(name + (value.empty() ? "" : name.rfind("--", 0) == 0 ? "=" : "+"));
    lines += names.size() == 1 ? names.front() : "{" + joined(names, ",") + "}";
    lines += "'" + text;
  }
  return lines;
}

}  // namespace

std::string bash_completion(const CLI::App& program) {
  const auto name = function_name(program);
  std::vector<std::string> names;
  for (const auto* app : listed_subcommands(program))
    names.push_back(app->get_name());
  std::string script = "# Completion of " + program.get_name() + " for bash, which `" +
                       program.get_name() + " --completion bash` writes.\n\n";
  script += name + "_words() {\n  mapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$cur\")\n}\n\n";
  script += name +
            "_files() {\n"
            "  compopt -o filenames 2>/dev/null\n"
            "  mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
            "}\n\n";
  script += name +
            "() {\n"
            "  local cur=${COMP_WORDS[COMP_CWORD]} option=${COMP_WORDS[COMP_CWORD - 1]}\n"
            "  local subcommand='' i\n"
            "  COMPREPLY=()\n"
            "  # bash makes three words of --option=value.\n"
            "  if [[ $cur == = ]]; then\n"
            "    cur=''\n"
            "  elif [[ $option == = ]]; then\n"
            "    option=${COMP_WORDS[COMP_CWORD - 2]}\n"
            "  fi\n"
            "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
            "    case ${COMP_WORDS[i]} in\n"
            "      " +
            joined(names, " | ") +
            ") subcommand=${COMP_WORDS[i]} && break ;;\n"
            "    esac\n"
            "  done\n"
            "  case $subcommand,$option in\n";
  add_bash_values(script, name, "", program);
  for (const auto* app : listed_subcommands(program))
    add_bash_values(script, name, app->get_name(), *app);
  script +=
      "  esac\n"
      "  case $subcommand,$cur in\n"
      "    ,-*) " +
      name + "_words '" + option_names(program) + "' ;;\n    ,*) " + name + "_words '" +
      joined(names, " ") + "' ;;\n";
  for (const auto* app : listed_subcommands(program))
    script +=
        "    " + app->get_name() + ",-*) " + name + "_words '" + option_names(*app) + "' ;;\n";
  script += "    *) " + name + "_files ;;\n  esac\n}\n\ncomplete -F " + name + " " +
            program.get_name() + "\n";
  return script;
}

std::string zsh_completion(const CLI::App& program) {
  const auto name = "_" + program.get_name();
  std::string script = "#compdef " + program.get_name() + "\n# Completion of " +
                       program.get_name() + " for zsh, which `" + program.get_name() +
                       " --completion zsh` writes.\n\n" + name +
                       "() {\n"
                       "  local context state state_descr line\n"
                       "  local -a subcommands\n"
                       "  typeset -A opt_args\n"
                       "  subcommands=(\n";
  for (const auto* app : listed_subcommands(program))
    script += "    '" + app->get_name() + ":" + zsh_text(app->get_description()) + "'\n";
  script += "  )\n  _arguments -C" + zsh_arguments(program, "    ") +
            " \\\n    '1: :->subcommand' \\\n    '*:: :->argument' && return\n"
            "  case $state in\n"
            "    subcommand) _describe subcommand subcommands ;;\n"
            "    argument)\n"
            "      case $words[1] in\n";
  for (const auto* app : listed_subcommands(program))
    script += "        " + app->get_name() + ")\n          _arguments" +
              zsh_arguments(*app, "            ") + " ;;\n";
  script +=
      "      esac ;;\n  esac\n}\n\n"
      "# zsh runs the file as the function, or a user reads it with `source`.\n"
      "if [[ $funcstack[1] == " +
      name + " ]]; then\n  " + name + " \"$@\"\nelse\n  compdef " + name + " " +
      program.get_name() + "\nfi\n";
  return script;
}

}  // namespace aten_recompute::command
