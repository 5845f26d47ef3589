// The operators of aten_recompute_test::, which testing.h describes.
#include <ATen/ATen.h>
#include <torch/library.h>

#include <functional>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/cpp/support/testing.h"

namespace aten_recompute::test {
namespace {

std::function<void()>& probe_hook() {
  static std::function<void()> hook;
  return hook;
}

at::Tensor square(const at::Tensor& x) {
  return x * x;
}
std::tuple<at::Tensor, at::Tensor> pair(const at::Tensor& x) {
  return {x * 2, x * 3};
}
std::tuple<at::Tensor, at::Tensor> choose(const at::Tensor& x, const at::Tensor& y, bool first) {
  return first ? std::make_tuple(x * 2, y * 3) : std::make_tuple(y * 2, x * 3);
}
std::tuple<at::Tensor, at::Tensor> one_of_two(const at::Tensor& x) {
  return {x * 2, at::Tensor()};
}
at::Tensor triple(const at::Tensor& x) {
  return x * 3;
}
at::Tensor join(const std::vector<at::Tensor>& xs) {
  return at::cat(xs);
}
std::vector<at::Tensor> halves(const at::Tensor& x) {
  return x.chunk(2);
}
at::Tensor noise(const at::Tensor& x) {
  return x + at::rand_like(x);
}
at::Tensor probe(const at::Tensor& x) {
  if (probe_hook()) {
    probe_hook()();
  }
  return x + 0;
}
// Has no kernel for a device, so the dispatcher treats it as a composite of other operators.
bool is_conjugated(const at::Tensor& x) {
  return x.is_conj();
}

TORCH_LIBRARY(aten_recompute_test, m) {
  m.def("square(Tensor x) -> Tensor", &square);
  m.def("pair(Tensor x) -> (Tensor, Tensor)", &pair);
  m.def("choose(Tensor x, Tensor y, bool first) -> (Tensor, Tensor)", &choose);
  m.def("one_of_two(Tensor x) -> (Tensor, Tensor)", &one_of_two);
  m.def("triple(Tensor x) -> Tensor", &triple);
  m.def("join(Tensor[] xs) -> Tensor", &join);
  m.def("halves(Tensor x) -> Tensor[]", &halves);
  m.def(torch::schema("noise(Tensor x) -> Tensor"), {at::Tag::nondeterministic_seeded});
  m.impl("noise", &noise);
  m.def("probe(Tensor x) -> Tensor", &probe);
  // A kernel for meta tensors tells that sizes do not depend on data.
  m.impl("probe", torch::dispatch(c10::DispatchKey::Meta,
                                  [](const at::Tensor& x) { return at::empty_like(x); }));
  m.def("is_conjugated(Tensor x) -> bool", &is_conjugated);
}

}  // namespace

ScopedProbe::ScopedProbe(std::function<void()> probe) {
  probe_hook() = std::move(probe);
}
ScopedProbe::~ScopedProbe() {
  probe_hook() = nullptr;
}

}  // namespace aten_recompute::test
