// A method's graph, made ready for regions.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <vector>

#include "passes/frontend/fold_attributes.h"

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// What a prepared graph assumes of one call's inputs.
struct InputAssumption {
  size_t input = 0;      // index among the method's inputs, self not counted
  bool is_none = false;  // an Optional input
  int64_t rank = -1;     // dimensions of a tensor input; -1: not assumed
};

// Everything that must hold for a prepared graph to be used for a call.
struct Assumptions {
  std::vector<FoldedAttribute> attributes;
  std::vector<InputAssumption> inputs;

  bool hold(const c10::intrusive_ptr<c10::ivalue::Object>& self,
            const std::vector<c10::IValue>& inputs) const;
};

// Folds what is constant for this call and brings the graph into the form that form_regions()
// wants: no `if` on attributes, None or dim(), in-place operators on values that the method made
// itself as functional ones, no tuples between operators, loops over modules unrolled, dropout gone
// in evaluation. `graph` is changed; inline_modules() has run on it.
Assumptions prepare(const std::shared_ptr<torch::jit::Graph>& graph,
                    const c10::intrusive_ptr<c10::ivalue::Object>& self,
                    const std::vector<c10::IValue>& inputs);

}  // namespace aten_recompute
