#include "common/parse_options.h"

#include <aten_recompute/errors.h>

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/did_you_mean.h"
#include "common/environment.h"
#include "common/join.h"
#include "common/json_text.h"
#include "common/log.h"
#include "common/option_table.h"

namespace aten_recompute {
namespace {

using Json = nlohmann::json;

// One line that says what is wrong with a spec. The public functions add whose spec it is.
struct OptionError {
  std::string message;
  std::string option = "";  // its name; "" where the error is about no single one
};

bool is_key_of(const StrategyRule& rule, std::string_view name) {
  return find_key(rule.arguments, name) != nullptr || find_key(rule.extras, name) != nullptr;
}

// ---- Messages ----

std::string quote(std::string_view text) {
  return shown_json(Json(std::string(text)));
}

std::vector<std::string> names_of_strategies() {
  std::vector<std::string> names;
  for (const StrategyRule& rule : strategies())
    names.emplace_back(rule.name);
  return names;
}

std::string strategy_names() {
  return join(names_of_strategies());
}

std::string quoted_names(const std::vector<KeyRule>& keys) {
  std::vector<std::string> names;
  for (const KeyRule& key : keys)
    names.push_back(quote(key.name));
  return join(names);
}

[[noreturn]] void fail_value(std::string_view key, const Json& value, std::string_view accepts) {
  throw OptionError{
      "key " + quote(key) + ": got " + shown_json(value) + ", accepted is " + std::string(accepts),
      std::string(key)};
}

[[noreturn]] void fail_strategy(const Json& value) {
  const auto names = names_of_strategies();
  fail_value("strategy", value,
             "one of " + join(names) +
                 (value.is_string() ? did_you_mean(value.get<std::string>(), names) : ""));
}

// Returns the keys that go with the strategy, or with its short form.
std::vector<KeyRule> keys_of(const StrategyRule& strategy, const KeyRule* short_form) {
  auto keys = short_form == nullptr ? strategy.arguments : std::vector<KeyRule>{};
  keys.insert(keys.end(), strategy.extras.begin(), strategy.extras.end());
  return keys;
}

std::vector<std::string> names_of_all_keys() {
  std::vector<std::string> names{"strategy"};
  const auto add = [&](const std::vector<KeyRule>& keys) {
    for (const KeyRule& key : keys) {
      if (std::find(names.begin(), names.end(), key.name) == names.end())
        names.emplace_back(key.name);
    }
  };
  for (const StrategyRule& rule : strategies())
    add(rule.short_forms);
  for (const StrategyRule& rule : strategies()) {
    add(rule.arguments);
    add(rule.extras);
  }
  return names;
}

[[noreturn]] void fail_unknown_key(const std::string& name, const StrategyRule* strategy,
                                   const KeyRule* short_form) {
  const auto known = names_of_all_keys();
  std::string accepted;
  if (strategy != nullptr) {
    accepted = quoted_names(keys_of(*strategy, short_form));
  } else {
    for (const std::string& key : known)
      accepted += accepted.empty() ? quote(key) + " (" + strategy_names() + ")" : ", " + quote(key);
  }
  throw OptionError{
      "key " + quote(name) + " is unknown, accepted are " + accepted + did_you_mean(name, known),
      name};
}

// ---- Reading a spec ----

struct Spec {
  Options options;
  bool names_strategy = false;
  std::vector<std::pair<const KeyRule*, Json>> common;  // keys that go with any strategy
};

Json parse_object(const std::string& text) {
  if (const auto why = json_limit_exceeded(text); !why.empty())
    throw OptionError{"it is " + why};
  std::set<std::string> keys;
  const auto refuse_repeated_keys = [&](int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::key && depth == 1) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys.insert(key).second)
        throw OptionError{"key " + quote(key) + " is given twice", key};
    }
    return true;
  };

  Json object;
  try {
    object = Json::parse(text, refuse_repeated_keys);
  } catch (const Json::out_of_range& error) {
    throw OptionError{"a number in it is too large"};
  } catch (const Json::parse_error& error) {
    const auto& rules = strategies();
    const bool is_strategy = std::any_of(
        rules.begin(), rules.end(), [&](const StrategyRule& rule) { return rule.name == text; });
    if (is_strategy) {
      throw OptionError{"got " + text + ", which is not JSON; write {\"strategy\": \"" + text +
                        "\"}"};
    }
    // nlohmann_json writes "[json.exception.parse_error.101] parse error at line 1, column 5: ...";
    // the label is removed.
    std::string reason = error.what();
    constexpr std::string_view kLabel = "] parse error ";
    if (const size_t label = reason.find(kLabel); label != std::string::npos)
      reason.erase(0, label + kLabel.size());
    throw OptionError{"not valid JSON " + printable(reason)};
  }
  if (!object.is_object()) {
    throw OptionError{"got " + shown_json(object) +
                      ", accepted is a JSON object, e.g. {\"strategy\": \"segments\"}"};
  }
  return object;
}

// Returns the strategy that `object` names, and the short form that names it (nullptr for the key
// "strategy"). The strategy is nullptr if none is named.
std::pair<const StrategyRule*, const KeyRule*> find_strategy(const Json& object) {
  const StrategyRule* found = nullptr;
  const KeyRule* short_form = nullptr;
  std::string found_key;
  const auto take = [&](const StrategyRule& rule, const KeyRule* form, const std::string& key) {
    if (found != nullptr) {
      throw OptionError{"keys " + quote(found_key) + " and " + quote(key) +
                        " both name a strategy, accepted is one"};
    }
    found = &rule;
    short_form = form;
    found_key = key;
  };

  for (const auto& [key, value] : object.items()) {
    if (key == "strategy") {
      const auto& rules = strategies();
      const auto rule = std::find_if(
          rules.begin(), rules.end(),
          [&value = value](const StrategyRule& candidate) { return value == candidate.name; });
      if (rule == rules.end())
        fail_strategy(value);
      take(*rule, nullptr, key);
    }
    for (const StrategyRule& rule : strategies()) {
      if (const KeyRule* form = find_key(rule.short_forms, key))
        take(rule, form, key);
    }
  }
  return {found, short_form};
}

void store_key(const std::string& key, const Json& value, const StrategyRule* strategy,
               const KeyRule* short_form, Options& options) {
  if (key == "strategy")
    return;
  const KeyRule* rule = nullptr;
  if (short_form != nullptr && short_form->name == key) {
    rule = short_form;
  } else if (strategy == nullptr) {
    rule = find_key(common_keys(), key);
  } else {
    rule = find_key(strategy->extras, key);
    if (rule == nullptr && short_form == nullptr)
      rule = find_key(strategy->arguments, key);
  }
  if (rule != nullptr) {
    if (!rule->store(value, options))
      fail_value(key, value, rule->accepts);
    return;
  }

  const auto& rules = strategies();
  if (std::none_of(rules.begin(), rules.end(),
                   [&](const StrategyRule& each) { return is_key_of(each, key); })) {
    fail_unknown_key(key, strategy, short_form);
  }
  if (strategy == nullptr)
    throw OptionError{"key " + quote(key) + " needs a strategy, accepted are " + strategy_names(),
                      std::string(key)};
  const std::string owner = short_form == nullptr ? "strategy " + quote(strategy->name)
                                                  : "the short form " + quote(short_form->name);
  throw OptionError{"key " + quote(key) + " does not belong to " + owner + ", accepted are " +
                        quoted_names(keys_of(*strategy, short_form)),
                    std::string(key)};
}

Spec parse_spec(const std::string& text) {
  Spec spec;
  if (text.find_first_not_of(" \t\r\n") == std::string::npos)
    return spec;
  const Json object = parse_object(text);
  const auto [strategy, short_form] = find_strategy(object);
  if (strategy != nullptr) {
    spec.options.strategy = strategy->kind;
    spec.names_strategy = true;
  }
  for (const auto& [key, value] : object.items())
    store_key(key, value, strategy, short_form, spec.options);
  for (const KeyRule& rule : common_keys()) {
    if (object.contains(rule.name))
      spec.common.emplace_back(&rule, object[rule.name]);
  }

  if (strategy != nullptr && short_form == nullptr && strategy->needs_arguments) {
    for (const KeyRule& key : strategy->arguments) {
      if (!object.contains(key.name)) {
        throw OptionError{"strategy " + quote(strategy->name) + " needs the key " +
                          quote(key.name) + ", accepted is " + std::string(key.accepts)};
      }
    }
  }
  if (strategy != nullptr && strategy->kind == StrategyKind::kBudget &&
      !object.contains("memory_budget") && !object.contains("time_budget")) {
    throw OptionError{
        "strategy \"budget\" needs the key \"memory_budget\" or \"time_budget\", accepted is " +
        std::string(find_key(strategy->arguments, "memory_budget")->accepts) + ", or " +
        std::string(find_key(strategy->arguments, "time_budget")->accepts)};
  }
  if (object.contains("ratio") && (object.contains("start") || object.contains("stride")))
    throw OptionError{"key \"ratio\" cannot be combined with \"start\" and \"stride\""};
  return spec;
}

Spec parse_or_throw(const std::string& text) {
  try {
    return parse_spec(text);
  } catch (const OptionError& error) {
    InvalidOptionError invalid("aten_recompute: invalid spec: " + error.message);
    invalid.option = error.option;
    invalid.raise_as_invalid_argument();
  }
}

}  // namespace

Options parse_options(const std::string& text) {
  return parse_or_throw(text).options;
}

Options resolve_options(const std::string& spec_text) {
  const Spec spec = parse_or_throw(spec_text);
  const auto fallback = environment("RECOMPUTE");
  if (spec.names_strategy || !fallback)
    return spec.options;
  try {
    Options options = parse_spec(*fallback).options;
    for (const auto& [rule, value] : spec.common)
      rule->store(value, options);
    return options;
  } catch (const OptionError& error) {
    log_warning(
        LogTopic::kGeneral,
        "the environment variable RECOMPUTE is invalid, nothing is recomputed: " + error.message);
    return spec.options;
  }
}

std::string to_json(const Options& options) {
  const auto& rule = rule_of(options.strategy);
  nlohmann::ordered_json json;
  const auto write = [&](const std::vector<KeyRule>& keys) {
    for (const auto& key : keys) {
      if (key.show == nullptr)
        continue;
      if (const auto value = key.show(options); !value.is_null())
        json[std::string(key.name)] = value;
    }
  };
  // A plan file can be given in the short form only.
  if (rule.traits.follows_plan_file)
    write(rule.short_forms);
  else
    json["strategy"] = rule.name;
  write(rule.arguments);
  write(rule.extras);
  return json.dump();
}

std::string describe(const Options& options) {
  // This is the canonical JSON without its punctuation, so both always show the same options.
  const auto json = nlohmann::ordered_json::parse(to_json(options));
  std::string text;
  for (const auto& [key, value] : json.items()) {
    std::string shown = value.is_string() ? value.get<std::string>() : value.dump();
    if (value.is_array())
      shown = join(value.get<std::vector<std::string>>());
    text += key == "strategy" ? shown : " " + key + "=" + shown;
  }
  return text;
}

std::string strategy_help() {
  std::string text;
  for (const StrategyRule& rule : strategies()) {
    text += std::string(rule.name) + ": " + std::string(rule.meaning);
    std::vector<KeyRule> keys = rule.arguments;
    keys.insert(keys.end(), rule.extras.begin(), rule.extras.end());
    for (const KeyRule& key : keys)
      text += "; " + quote(key.name) + ": " + std::string(key.accepts);
    for (const KeyRule& form : rule.short_forms)
      text += "; short form {" + quote(form.name) + ": ...}: " + std::string(form.accepts);
    text += '\n';
  }
  return text;
}

}  // namespace aten_recompute
