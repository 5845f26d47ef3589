// The manual page, from the text that --help shows.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace aten_recompute::command {

// Returns the page of the program and its subcommands as roff, with the macros of man(7).
std::string manual(const CLI::App& program);

}  // namespace aten_recompute::command
