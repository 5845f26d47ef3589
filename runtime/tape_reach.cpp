#include "runtime/tape_reach.h"

#include <algorithm>

#include "runtime/call_context.h"

namespace aten_recompute {

bool TapeSources::is_needed() const {
  return std::any_of(outputs.begin(), outputs.end(),
                     [](Source source) { return source != kAlways; });
}

TapeReach::TapeReach(const TapeSources* sources)
    : sources_(sources),
      before_(
          std::exchange(CallContext::current().tape_reach, sources == nullptr ? nullptr : this)) {
  if (sources_ != nullptr)
    reached_.resize(sources_->operands.size());
}

TapeReach::~TapeReach() {
  CallContext::current().tape_reach = before_;
}

TapeReach* TapeReach::current() {
  return CallContext::current().tape_reach;
}

void TapeReach::note(size_t tape, size_t output, size_t operand) {
  reached_.at(tape).emplace_back(output, operand);
}

std::vector<bool> TapeReach::outputs() const {
  if (sources_ == nullptr)
    return {};
  std::vector<bool> requires_grad;  // per value
  const auto holds = [&](TapeSources::Source source) {
    return source == TapeSources::kAlways ||
           (source >= 0 && requires_grad[static_cast<size_t>(source)]);
  };
  for (const auto& value : sources_->values) {
    if (value.tape < 0) {
      requires_grad.push_back(std::any_of(value.of.begin(), value.of.end(), holds));
      continue;
    }
    const auto& operands = sources_->operands[value.tape];
    const auto& reached = reached_[value.tape];
    requires_grad.push_back(std::any_of(reached.begin(), reached.end(), [&](const auto& each) {
      return each.first == static_cast<size_t>(value.output) && holds(operands[each.second]);
    }));
  }
  std::vector<bool> outputs;
  std::transform(sources_->outputs.begin(), sources_->outputs.end(), std::back_inserter(outputs),
                 holds);
  return outputs;
}

}  // namespace aten_recompute
