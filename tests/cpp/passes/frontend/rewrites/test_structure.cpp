#include "passes/frontend/rewrites/structure.h"

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

class StructureTest : public test::TorchTest {};

c10::Dict<std::string, at::Tensor> dict(const std::string& first, const std::string& second) {
  c10::Dict<std::string, at::Tensor> result;
  result.insert(first, at::ones({2}));
  result.insert(second, at::ones({3}));
  return result;
}

TEST_F(StructureTest, SizesAndNumbersDoNotMatter) {
  EXPECT_TRUE(Structure::of(at::ones({2, 3})).matches(at::zeros({4, 1})));
  EXPECT_TRUE(Structure::of(3).matches(4));
  EXPECT_TRUE(Structure::of(std::string("a")).matches(std::string("b")));
}

TEST_F(StructureTest, RankDtypeAndKindMatter) {
  const auto structure = Structure::of(at::ones({2, 3}));
  EXPECT_FALSE(structure.matches(at::ones({2})));
  EXPECT_FALSE(structure.matches(at::ones({2, 3}, at::kDouble)));
  EXPECT_FALSE(structure.matches(at::ones({2, 3}).to_sparse()));
  EXPECT_FALSE(structure.matches(c10::IValue()));
  EXPECT_FALSE(Structure::of(3).matches(3.0));
  EXPECT_FALSE(Structure::of(c10::IValue()).matches(3));
}

TEST_F(StructureTest, LengthsAndKeysOfContainersMatter) {
  const c10::List<int64_t> three({1, 2, 3});
  EXPECT_TRUE(Structure::of(three).matches(c10::List<int64_t>({4, 5, 6})));
  EXPECT_FALSE(Structure::of(three).matches(c10::List<int64_t>({1, 2})));
  EXPECT_TRUE(Structure::of(dict("a", "b")).matches(dict("a", "b")));
  EXPECT_FALSE(Structure::of(dict("a", "b")).matches(dict("b", "a")));
  EXPECT_FALSE(Structure::of(dict("a", "b")).matches(dict("a", "c")));
}

TEST_F(StructureTest, ASharedContainerIsFound) {
  const c10::List<int64_t> list({1});
  EXPECT_TRUE(share_containers({list, list}));
  EXPECT_TRUE(share_containers({list, c10::ivalue::Tuple::create({list})}));
  EXPECT_FALSE(share_containers({list, c10::List<int64_t>({1})}));
  const auto tensor = at::ones({1});
  EXPECT_FALSE(share_containers({tensor, tensor}));
}

}  // namespace
}  // namespace aten_recompute
