// One differentiable region at run time.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <torch/custom_class.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "backend/region_variant.h"
#include "passes/pipeline.h"

namespace aten_recompute {

class Region : public torch::CustomClassHolder {
 public:
  // `graph` is the region's forward; `is_attribute[i]`: input i was read from the module.
  Region(std::shared_ptr<torch::jit::Graph> graph, std::vector<bool> is_attribute, Options options);

  // Takes the region's inputs from the stack and leaves its outputs there, with their autograd
  // history. Compiles a variant for each new set of inputs that require grad. Thread-safe.
  void run(torch::jit::Stack& stack);

  // Variants in the order in which they were compiled.
  std::vector<std::shared_ptr<const RegionVariant>> variants() const;

 private:
  // nullptr: the region cannot be differentiated ahead of time.
  std::shared_ptr<const RegionVariant> variant_for(const std::vector<bool>& requires_grad,
                                                   const std::vector<c10::IValue>& inputs);
  // The forward as it is, without gradients or under ordinary autograd.
  void run_uncompiled(torch::jit::Stack& stack, std::vector<c10::IValue> inputs) const;

  std::shared_ptr<torch::jit::Graph> graph_;
  std::vector<bool> is_attribute_;
  Options options_;
  Program uncompiled_;
  mutable std::mutex mutex_;
  std::map<std::vector<bool>, std::shared_ptr<const RegionVariant>> variants_;
  std::vector<std::shared_ptr<const RegionVariant>> in_order_;
};

}  // namespace aten_recompute
