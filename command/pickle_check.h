// A look at the pickles of an archive before LibTorch reads them.
#pragma once

#include <string>
#include <string_view>

namespace aten_recompute::command {

// Returns whether a pickle has a string that is longer than what is left of it, or more objects to
// remember than it has bytes. LibTorch makes room for either before it reads on, up to 64 GiB.
bool claims_too_much(std::string_view pickle);

// Returns the name of a record of the archive in the file whose pickle claims too much; "" where
// there is none, and where the file is no archive: LibTorch says what is wrong with it.
std::string damaged_pickle(const std::string& path);

}  // namespace aten_recompute::command
