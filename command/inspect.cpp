// aten-recompute inspect: what is in a file.
#include <aten_recompute/aten_recompute.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "command/arguments.h"
#include "command/inputs.h"
#include "command/model_file.h"
#include "command/subcommands.h"
#include "command/texts.h"

namespace aten_recompute::command {
namespace {

using nlohmann::json;

struct InspectArguments : Arguments {
  int depth = 2;
  bool names_method = false;
};

std::string signature_of(const torch::jit::Method& method) {
  const auto& schema = method.function().getSchema();
  std::string text = method.name() + "(";
  for (size_t i = 1; i < schema.arguments().size(); ++i) {
    const auto& argument = schema.arguments()[i];
    text += (i == 1 ? "" : ", ") + argument.name() + ": " + argument.type()->annotation_str();
  }
  text += ")";
  for (const auto& result : schema.returns())
    text += " -> " + result.type()->annotation_str();
  return text;
}

// Returns how a method is lowered: {"forward": {"strategy": ...}}; no key for other methods.
json lowered_methods(const torch::jit::Module& module) {
  json lowered = json::object();
  try {
    const auto reported = json::parse(report(module));
    for (const auto& method : reported["methods"])
      lowered[method["method"].get<std::string>()] = method["options"];
  } catch (const NotLoweredError&) {
  }
  return lowered;
}

json methods_of(const torch::jit::Module& module) {
  const auto lowered = lowered_methods(module);
  json methods = json::array();
  for (const auto& method : module.get_methods()) {
    json entry = {{"name", method.name()}, {"signature", signature_of(method)}};
    if (lowered.contains(method.name()))
      entry["lowered"] = lowered[method.name()];
    methods.push_back(std::move(entry));
  }
  return methods;
}

// Returns number, bytes and trainable elements of tensors.
template <class List>
json tensors_of(const List& list) {
  int64_t tensors = 0, elements = 0, bytes = 0, trainable = 0;
  for (const at::Tensor& tensor : list) {
    if (!tensor.defined())
      continue;
    ++tensors;
    elements += tensor.numel();
    bytes += static_cast<int64_t>(tensor.nbytes());
    trainable += tensor.requires_grad() ? tensor.numel() : 0;
  }
  return {{"tensors", tensors}, {"elements", elements}, {"bytes", bytes}, {"trainable", trainable}};
}

// Appends the modules down to the depth, in their order in the file.
void append_modules(const torch::jit::Module& module, const std::string& path, int depth,
                    json& modules) {
  for (const auto& child : module.named_children()) {
    const auto name = path.empty() ? child.name : path + "." + child.name;
    const auto type = child.value.type()->name();
    modules.push_back({{"path", name},
                       {"class", type ? type->name() : ""},
                       {"parameters", tensors_of(child.value.parameters())}});
    if (depth > 1)
      append_modules(child.value, name, depth - 1, modules);
  }
}

void print_inspection(const InspectArguments& arguments, const json& result) {
  const auto& parameters = result["parameters"];
  const auto& buffers = result["buffers"];
  std::printf("%s: %s, saved in %s mode\n", arguments.path.c_str(),
              result["class"].get<std::string>().c_str(),
              result["training"].get<bool>() ? "training" : "evaluation");
  std::printf("parameters: %lld in %lld tensors, %s, %lld of them trainable\n",
              parameters["elements"].get<long long>(), parameters["tensors"].get<long long>(),
              byte_text(parameters["bytes"].get<int64_t>()).c_str(),
              parameters["trainable"].get<long long>());
  std::printf("buffers: %lld in %lld tensors, %s\n", buffers["elements"].get<long long>(),
              buffers["tensors"].get<long long>(),
              byte_text(buffers["bytes"].get<int64_t>()).c_str());
  for (const auto& method : result["methods"]) {
    std::printf("method: %s\n", method["signature"].get<std::string>().c_str());
    if (method.contains("lowered"))
      std::printf("  lowered with %s\n", method["lowered"].dump().c_str());
  }
  if (!result["modules"].empty()) {
    std::printf("\n");
    Table table({"module", "class", "parameters", "bytes"});
    for (const auto& module : result["modules"])
      table.add({module["path"].get<std::string>(), module["class"].get<std::string>(),
                 std::to_string(module["parameters"]["elements"].get<int64_t>()),
                 byte_text(module["parameters"]["bytes"].get<int64_t>())});
    table.print();
  }
  std::printf("\n");
  if (!result.contains("regions")) {
    std::printf("With --input, regions and the breaks between them are shown, too.\n");
    return;
  }
  std::printf("regions: %lld\n", result["regions"].get<long long>());
  for (const auto& each : result["breaks"])
    std::printf("break: %s at %s: %s\n", each["node"].get<std::string>().c_str(),
                each["location"].get<std::string>().c_str(),
                each["reason"].get<std::string>().c_str());
}

void run_inspect(const InspectArguments& arguments) {
  auto module = load_module(arguments.path, Tensors::kDescribed);
  const auto type = module.type()->name();
  json result = {
      {"class", type ? type->name() : ""},       {"training", module.is_training()},
      {"methods", methods_of(module)},           {"parameters", tensors_of(module.parameters())},
      {"buffers", tensors_of(module.buffers())}, {"modules", json::array()}};
  if (arguments.names_method)
    find_method(module, arguments.method);  // throws if there is none
  append_modules(module, "", arguments.depth, result["modules"]);
  if (!arguments.inputs.empty()) {
    if (arguments.train)
      module.train();
    const auto inputs =
        make_inputs(module, arguments.method, arguments.inputs, Tensors::kDescribed);
    auto step = json::parse(profile(module, inputs, /*meta=*/true,
                                    {.method = arguments.method, .device = "cpu", .options = ""}));
    result["regions"] = step["regions"];
    result["breaks"] = step["breaks"];
  }
  if (arguments.json)
    print(result);
  else
    print_inspection(arguments, result);
}

}  // namespace

void add_inspect(CLI::App& program) {
  const auto arguments = std::make_shared<InspectArguments>();
  auto* const app = program.add_subcommand(
      "inspect", "Lists methods, parameters and modules of a file, its regions and breaks.");
  add_file(*app, *arguments);
  add_call(*app, *arguments, /*optional=*/true);
  app->add_option("--depth", arguments->depth,
                  "how many names the path of a module that is listed has at most")
      ->check(CLI::Range(1, 100))
      ->capture_default_str()
      ->type_name("COUNT");
  app->footer(
      "Tensors are not read. With --input, the method is followed on these inputs without running\n"
      "it: a region is a stretch that is planned as a whole, and a break is what ends one.\n\n"
      "Example:\n"
      "  aten-recompute inspect gpt.pt --input 'int64[8,512]' --input 'int64[8,512]'");
  app->callback([arguments, app] {
    arguments->names_method = app->count("--method") > 0;
    run_inspect(*arguments);
  });
}

}  // namespace aten_recompute::command
