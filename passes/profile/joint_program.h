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
  // The first so many instructions need nothing but the inputs of a call: the forward and, where
  // the method asks for gradients that are the backward (JointGraph::has_inner_backward), these,
  // with what stands behind them.
  size_t num_before_loss = 0;

  // Returns whether an instruction is an operator of the program itself, and no gradient of one.
  bool is_of_program(size_t index) const;

  // Returns the operands of an instruction, read from `registers`.
  std::vector<c10::IValue> operands(size_t index, const Program::Registers& registers) const;
};

// Returns whether an instruction draws random numbers.
bool draws_random_numbers(const JointProgram& program);

// Returns a program that runs the forward and then the backward. Every output of every node has a
// register.
JointProgram make_joint_program(const JointGraph& joint);

}  // namespace aten_recompute
