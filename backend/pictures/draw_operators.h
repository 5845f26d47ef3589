// The operators of regions and what flows between them, as pictures show them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planner/model/problem.h"

namespace torch::jit {
struct Gradient;
}

namespace aten_recompute {
enum class DrawnPart { kJoint, kForward, kBackward };
}

namespace aten_recompute::drawing {

enum class State {
  kPlain,       // of the forward, and the backward does not need it; or of the backward
  kSaved,       // the backward reads it in memory
  kDropped,     // it is freed after the forward, and the backward computes it again
  kRecomputed,  // the backward's run of a forward operator
};

enum class Role { kOperator, kInput, kOutput, kIncoming, kGradient };

struct Op {
  size_t region = 0;
  bool in_backward = false;
  Role role = Role::kOperator;
  State state = State::kPlain;
  std::string label;
  std::string path{};    // of the module
  bool is_list = false;  // it makes a list, or is part of the backward of that
};

// The memory that a value keeps alive.
struct Memory {
  std::vector<int32_t> storages;
  int64_t bytes = 0;  // 0: not known, or the caller's
};

struct Flow {
  int from = 0;
  int to = 0;
  Memory memory;
  std::string value;
  bool is_saved = false;    // from the forward to the backward
  bool is_outside = false;  // by way of the caller
};

struct Operators {
  std::vector<Op> ops;
  std::vector<Flow> flows;
  std::map<std::pair<size_t, std::string>, int> producers;  // of forward values, by name
  std::vector<Memory> memory;                               // per op: of its results
  std::vector<std::vector<std::string>> layers;             // paths of layers, atom by atom
};

// Adds the operators of the region with this number. `problem` has the sizes; nullptr: none are
// known. `is_attribute` says which inputs were read from the module; these are not shown.
void read_operators(Operators& operators, size_t region, const torch::jit::Gradient& gradient,
                    const Problem* problem, const std::vector<bool>& is_attribute, DrawnPart part);

// What comes when all regions have been read: puts operators that passes made into the modules that
// they serve, and removes those that are connected with nothing.
void finish_reading(Operators& operators);

// Returns the names of a module's path, from the root on.
std::vector<std::string> atoms_of(const std::string& path);

}  // namespace aten_recompute::drawing
