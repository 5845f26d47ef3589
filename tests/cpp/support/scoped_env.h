// Sets environment variables for one test and restores them afterward.
#pragma once

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

namespace aten_recompute::test {

class ScopedEnv {
 public:
  ScopedEnv() = default;
  ScopedEnv(const ScopedEnv&) = delete;
  ScopedEnv& operator=(const ScopedEnv&) = delete;

  ~ScopedEnv() {
    for (const auto& [name, value] : before_) {
      apply(name, value);
    }
  }

  void set(const std::string& name, const std::string& value) {
    remember(name);
    apply(name, value);
  }

  void unset(const std::string& name) {
    remember(name);
    apply(name, std::nullopt);
  }

 private:
  void remember(const std::string& name) {
    const char* value = std::getenv(name.c_str());
    before_.try_emplace(name, value == nullptr ? std::nullopt : std::optional<std::string>(value));
  }

  static void apply(const std::string& name, const std::optional<std::string>& value) {
    if (value) {
      setenv(name.c_str(), value->c_str(), /*overwrite=*/1);
    } else {
      unsetenv(name.c_str());
    }
  }

  std::map<std::string, std::optional<std::string>> before_;
};

}  // namespace aten_recompute::test
