// Files of pictures: written as a whole or not at all, rendered by graphviz.
#pragma once

#include <string>

namespace aten_recompute {

// Writes the file under a temporary name in its folder, then renames it. Throws std::runtime_error,
// with a message of one line, where that fails.
void write_file(const std::string& path, const std::string& text);

enum class PictureFormat { kDot, kSvg, kPng };

// Returns the format that the ending of the path names. Throws std::invalid_argument for another.
PictureFormat picture_format(const std::string& path);

// Returns whether graphviz is installed: its program `dot` is on the PATH.
bool has_graphviz();

// Writes the graph, given in the language of graphviz, as a picture. Throws std::runtime_error,
// with a message of one line, where graphviz is not installed or fails, or the file cannot be
// written.
void write_picture(const std::string& path, PictureFormat format, const std::string& dot);

}  // namespace aten_recompute
