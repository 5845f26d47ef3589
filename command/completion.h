// Scripts by which shells complete the arguments of the program.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace aten_recompute::command {

// Return a script that the shell reads, for the program and its subcommands as they are described.
// Names of options, subcommands and listed values are completed, and files where one is expected.
// Bash needs no other package for it. The script of zsh may lie in its fpath, too.
std::string bash_completion(const CLI::App& program);
std::string zsh_completion(const CLI::App& program);

}  // namespace aten_recompute::command
