// The subcommands. Each function adds one to the program; its callback runs it, and throws Failure
// or an error of the library if it does not succeed.
#pragma once

#include <CLI/CLI.hpp>

namespace aten_recompute::command {

void add_estimate(CLI::App& program);
void add_plan(CLI::App& program);
void add_lower(CLI::App& program);
void add_inspect(CLI::App& program);
void add_profile(CLI::App& program);
void add_check(CLI::App& program);
void add_bench(CLI::App& program);
void add_diff(CLI::App& program);
void add_draw(CLI::App& program);

}  // namespace aten_recompute::command
