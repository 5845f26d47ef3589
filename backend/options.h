// What the user asks for: the strategy that chooses what is recomputed, and its arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace aten_recompute {

enum class StrategyKind { kNone, kAll, kNames, kLayers, kOps, kSegments };

/// A validated request. Fields that do not belong to `strategy` keep their defaults.
struct Options {
  StrategyKind strategy = StrategyKind::kNone;

  /// names: a value is recomputed if its name contains one of these. One that starts with "%"
  /// matches value names only
  /// ("%relu": the value's name contains "relu"); the "%" is kept here.
  std::vector<std::string> keywords;

  /// ops: ATen operator names, e.g. "relu"; a leading "aten::" is dropped.
  std::vector<std::string> ops;

  /// layers: layers `layer_start`, `layer_start + layer_stride`, ... are recomputed, unless
  /// `layer_ratio` is set.
  int64_t layer_start = 0;
  int64_t layer_stride = 1;

  /// layers: the first `layer_ratio` of the layers, in (0, 1].
  std::optional<double> layer_ratio;

  /// segments: how many segments, >= 1; without it the planner decides.
  std::optional<int64_t> segment_count;

  /// all, layers: a regular expression (ECMAScript) over module paths that names the layers; empty:
  /// found from the module hierarchy.
  std::string layer_pattern;

  /// A second region in a method is an error.
  bool fullgraph = false;

  bool operator==(const Options&) const = default;
};

/// Reads a spec: "" (nothing asked for) or a JSON object. Throws std::invalid_argument with one
/// line that names the key, what was given and what is accepted.
Options parse_options(const std::string& text);

/// `parse_options`, except that where the spec names no strategy the environment variable RECOMPUTE
/// decides; with neither, nothing is recomputed. An invalid RECOMPUTE logs one warning and counts
/// as absent; an invalid spec throws as in `parse_options`.
Options resolve_options(const std::string& spec_text);

/// The canonical JSON of `options`, in one line; `parse_options` gives the same options back.
std::string to_json(const Options& options);

/// A short form for people, e.g. "layers start=0 stride=2".
std::string describe(const Options& options);

/// The strategies with their keys and what each accepts, one line each.
std::string strategy_help();

}  // namespace aten_recompute
