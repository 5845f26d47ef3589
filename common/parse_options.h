// Converts options from and to text: specs in JSON, and descriptions for people.
#pragma once

#include <string>

#include "common/options.h"

namespace aten_recompute {

// Reads a spec: "" (no options) or a JSON object. Throws an InvalidOptionError, which is a
// std::invalid_argument, with one line that names the key, the given value and the accepted
// values.
Options parse_options(const std::string& text);

// Like parse_options(), but if the spec names no strategy, the environment variable RECOMPUTE
// decides; with neither, nothing is recomputed. An invalid RECOMPUTE logs one warning and is
// ignored.
Options resolve_options(const std::string& spec_text);

// Returns the canonical JSON of `options` in one line; parse_options() turns it into equal
// options.
std::string to_json(const Options& options);

// Returns a short description for people, e.g. "layers start=0 stride=2".
std::string describe(const Options& options);

// Returns the strategies with their keys and the values that each key accepts, one strategy per
// line.
std::string strategy_help();

}  // namespace aten_recompute
