#include "backend/pictures/artifacts.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/autodiff.h>
#include <unistd.h>

#include <atomic>
#include <ctime>
#include <filesystem>

#include "backend/pictures/draw_graph.h"
#include "backend/pictures/graph_code.h"
#include "backend/pictures/picture_file.h"
#include "common/environment.h"
#include "common/log.h"
#include "common/warn_once.h"

namespace aten_recompute {
namespace {

namespace fs = std::filesystem;
using Object = c10::intrusive_ptr<c10::ivalue::Object>;

// Returns the time at which this is first called, and the process.
const std::string& run_of_process() {
  static const std::string* run = [] {
    const auto now = std::time(nullptr);
    std::tm local{};
    localtime_r(&now, &local);
    char text[32];
    std::strftime(text, sizeof(text), "%Y%m%d-%H%M%S", &local);
    return new std::string(text + ("-" + std::to_string(getpid())));
  }();
  return *run;
}

void make_folder(const fs::path& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error)
    throw std::runtime_error("cannot make the folder " + path.string() + ": " + error.message());
}

struct WrittenPart {
  DrawnPart part;
  const char* name;
};

}  // namespace

// The folder of a module.
struct Artifacts::Folder {
  fs::path path;
  std::atomic<bool> failed{false};
};

std::shared_ptr<Artifacts::Folder> Artifacts::folder_of(const Object& module,
                                                        const std::string& class_name) {
  // A weak pointer to the module would keep its parameters in memory. As long as the folder lives,
  // an Artifacts has both, so the address is that of this module.
  struct Known {
    const c10::ivalue::Object* module;
    fs::path base;
    std::weak_ptr<Folder> folder;
  };
  static std::mutex mutex;
  static auto* known = new std::vector<Known>();
  const std::lock_guard<std::mutex> lock(mutex);
  const auto base = fs::path(environment("RECOMPUTE_PROJECT_ROOT").value_or(".")) / "IR_artifacts" /
                    environment("RECOMPUTE_MODEL_NAME").value_or(class_name) / "runs" /
                    environment("RECOMPUTE_RUN_ID").value_or(run_of_process());
  size_t number = 1;
  for (const auto& each : *known) {
    if (each.base != base)
      continue;
    if (auto folder = each.folder.lock(); folder != nullptr && each.module == module.get())
      return folder;
    ++number;
  }
  auto folder = std::make_shared<Folder>();
  folder->path = base;
  if (number > 1)
    folder->path += "-" + std::to_string(number);
  known->push_back({module.get(), base, folder});
  log_info(LogTopic::kGeneral,
           "save_ir: the graphs of " + class_name + " are in " + folder->path.string());
  return folder;
}

bool saves_ir_by_environment() {
  const auto value = environment("RECOMPUTE_SAVE_IR").value_or("0");
  if (value != "0" && value != "1") {
    static WarnOnce warn;
    warn(LogTopic::kGeneral,
         "RECOMPUTE_SAVE_IR is \"" + value + "\"; accepted are 1 and 0. No graphs are written.");
  }
  return value == "1";
}

Artifacts::Artifacts(Object module, std::string class_name, std::string method)
    : module_(std::move(module)), class_name_(std::move(class_name)), method_(std::move(method)) {}

template <typename Function>
void Artifacts::attempt(const Function& function) {
  if (folder_ == nullptr)
    folder_ = folder_of(module_, class_name_);
  if (folder_->failed)
    return;
  try {
    function();
  } catch (const std::exception& error) {
    const std::string what = error.what();
    if (!folder_->failed.exchange(true)) {
      log_warning(LogTopic::kGeneral, "save_ir: " + what.substr(0, what.find('\n')) +
                                          "; no more graphs of this module are written");
    }
  }
}

bool Artifacts::write(const std::shared_ptr<const CompiledRegion>& compiled_region,
                      size_t specialization, size_t region, const std::vector<bool>& is_attribute) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!written_.insert(compiled_region).second)
    return false;
  const auto& graphs = compiled_region->graphs();
  const auto variant = num_variants_[{specialization, region}]++;
  const auto stem = method_ + ".s" + std::to_string(specialization) + ".r" +
                    std::to_string(region) + ".v" + std::to_string(variant);
  const auto write_all = [&](const std::string& folder_name, const torch::jit::Gradient& gradient) {
    const auto folder = folder_->path / folder_name;
    make_folder(folder);
    for (const auto& [part, name] :
         {WrittenPart{DrawnPart::kForward, "FW"}, WrittenPart{DrawnPart::kBackward, "BW"},
          WrittenPart{DrawnPart::kJoint, "FW_BW"}}) {
      const auto path = (folder / (stem + "." + name)).string();
      if (part != DrawnPart::kJoint) {
        const auto& graph = part == DrawnPart::kForward ? gradient.f : gradient.df;
        write_file(path + ".txt", graph->toString(/*print_source_locations=*/false));
        write_file(path + ".py",
                   code_of(graph, part == DrawnPart::kForward ? "forward" : "backward"));
      }
      const auto dot =
          draw_graph(gradient, graphs.plan ? graphs.plan->problem.get() : nullptr, is_attribute,
                     part,
                     class_name_ + "." + method_ + ", " + folder_name + ": " + stem + "." + name)
              .text();
      write_picture(path + ".dot", PictureFormat::kDot, dot);
      if (has_graphviz())
        write_picture(path + ".svg", PictureFormat::kSvg, dot);
    }
  };
  attempt([&] {
    if (graphs.captured != nullptr)
      write_all("capture", *graphs.captured);
    write_all("recompute", graphs.gradient);
  });
  return true;
}

void Artifacts::write_plan(const std::string& text) {
  const std::lock_guard<std::mutex> lock(mutex_);
  attempt([&] {
    make_folder(folder_->path / "recompute");
    write_file((folder_->path / "recompute" / (method_ + ".plan.json")).string(), text + "\n");
  });
}

}  // namespace aten_recompute
