// The version of LibTorch that the library is built against, as text that can be found in its file.
// A process with another LibTorch cannot load the library and ask it: the names that it needs are
// missing there. python/aten_recompute/_library.py reads the text and compares first.
#include <torch/version.h>

// The name is read from the file of the library.
// NOLINTBEGIN(readability-identifier-naming)
extern "C" {

extern const char aten_recompute_torch_version[];
[[gnu::used]] const char aten_recompute_torch_version[] =
    "aten_recompute was built for torch " TORCH_VERSION;

}  // extern "C"
// NOLINTEND(readability-identifier-naming)
