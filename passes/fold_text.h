// `if text:`, where the graph knows that the text has any.
#pragma once

#include <memory>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Replaces len(text) > 0 by True where every way to `text` ends in a string that is not empty: a
// constant, or a format with words in it. nn.MultiheadAttention and nn.TransformerEncoderLayer keep
// why they do not take their fast path in such a text, and ask it; which reason it is may depend on
// types, that there is one does not. Returns whether there was anything to replace.
bool fold_text(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace aten_recompute
