// Changes texts at random, as somebody would who looks for a text that does harm.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace aten_recompute::hostile {

class Mutator {
 public:
  // `corpus` must not be empty.
  Mutator(std::vector<std::string> corpus, uint64_t seed)
      : corpus_(std::move(corpus)), random_(seed) {}

  // Returns a text of the corpus with one to four changes. Every 64th text is one of the corpus as
  // it is.
  std::string next();

 private:
  size_t draw(size_t count) { return static_cast<size_t>(random_() % count); }
  template <class T>
  const T& draw_from(const std::vector<T>& items) {
    return items[draw(items.size())];
  }
  size_t place_in(const std::string& text) { return draw(text.size() + 1); }
  void change(std::string& text);
  void change_number(std::string& text);
  void nest(std::string& text);
  void repeat(std::string& text);

  std::vector<std::string> corpus_;
  std::mt19937_64 random_;
};

}  // namespace aten_recompute::hostile
