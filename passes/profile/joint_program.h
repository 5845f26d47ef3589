// A joint graph as a Program, whose instructions a profile goes through one by one.
#pragma once

#include <cstddef>
#include <vector>

#include "ir/joint_graph.h"
#include "runtime/program.h"

namespace aten_recompute {

struct JointProgram {
  Program program;
  std::vector<torch::jit::Node*> nodes;  // per instruction: its node in the joint graph
  size_t num_forward = 0;                // the first so many instructions are the forward

  // Returns the operands of an instruction, read from `registers`.
  std::vector<c10::IValue> operands(size_t index, const Program::Registers& registers) const;
};

// Returns a program that runs the forward and then the backward. Every output of every node has a
// register.
JointProgram make_joint_program(const JointGraph& joint);

}  // namespace aten_recompute
