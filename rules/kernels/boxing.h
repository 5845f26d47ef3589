// Turns plain C++ functions into operators of LibTorch's interpreter.
#pragma once

#include <ATen/core/ivalue.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

namespace aten_recompute {

namespace detail {

template <class Value>
void push_result(torch::jit::Stack& stack, Value&& value) {
  stack.emplace_back(std::forward<Value>(value));
}

template <class... Values>
void push_result(torch::jit::Stack& stack, std::tuple<Values...>&& values) {
  std::apply([&](auto&&... each) { (stack.emplace_back(std::move(each)), ...); },
             std::move(values));
}

template <class Result, class... Arguments, size_t... I>
void call(Result (*function)(Arguments...), torch::jit::Stack& stack, std::index_sequence<I...>) {
  constexpr size_t kCount = sizeof...(Arguments);
  auto result =
      function(torch::jit::peek(stack, I, kCount).template to<std::decay_t<Arguments>>()...);
  torch::jit::drop(stack, kCount);
  push_result(stack, std::move(result));
}

}  // namespace detail

// Returns an operator that takes the arguments of `function` from the stack and pushes its result,
// or the elements of a result that is a std::tuple.
template <class Result, class... Arguments>
torch::jit::Operator boxed_operator(const std::string& schema, Result (*function)(Arguments...),
                                    c10::AliasAnalysisKind kind) {
  return torch::jit::Operator(
      schema,
      [function](torch::jit::Stack& stack) {
        detail::call(function, stack, std::index_sequence_for<Arguments...>());
      },
      kind);
}

// `function` implements `schema`. Its results depend on its arguments only, and it changes none of
// them.
template <class Result, class... Arguments>
torch::jit::Operator pure_operator(const std::string& schema, Result (*function)(Arguments...)) {
  return boxed_operator(schema, function, c10::AliasAnalysisKind::PURE_FUNCTION);
}

// `function` implements `schema`: it changes the arguments that the schema declares as written, and
// returns one of them.
template <class Result, class... Arguments>
torch::jit::Operator in_place_operator(const std::string& schema,
                                       Result (*function)(Arguments...)) {
  return boxed_operator(schema, function, c10::AliasAnalysisKind::FROM_SCHEMA);
}

}  // namespace aten_recompute
