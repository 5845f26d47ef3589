// Files that show what recomputation did to a method (option "save_ir"):
//
//   <PROJECT_ROOT>/IR_artifacts/<MODEL_NAME>/runs/<RUN_ID>/
//     capture/forward.s0.r0.v0.FW.txt    the forward, as IR
//     capture/forward.s0.r0.v0.BW.txt    the backward, if all that it reads were kept
//     capture/....py, .dot, .svg         both as code and as pictures
//     recompute/...                      the same graphs as they run, with recomputation
//     recompute/forward.plan.json        the plans of the method, as save_plan writes them
//
// s0.r0.v0: the first specialization of the method, its first region, the first compilation of it.
#pragma once

#include <ATen/core/ivalue.h>

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backend/autograd/compiled_region.h"

namespace aten_recompute {

// Returns whether the environment variable RECOMPUTE_SAVE_IR asks for the files. A value other than
// 0 and 1 logs one warning and is ignored.
bool saves_ir_by_environment();

// The files of one method. Thread-safe.
class Artifacts {
 public:
  // `module` tells the methods of one module, which share a folder, from those of others.
  Artifacts(c10::intrusive_ptr<c10::ivalue::Object> module, std::string class_name,
            std::string method);

  // Writes the files of a compiled region, unless that was done before. Returns whether it was new.
  // Where a file cannot be written, one warning is logged, and nothing is written any more.
  bool write(const std::shared_ptr<const CompiledRegion>& compiled_region, size_t specialization,
             size_t region, const std::vector<bool>& is_attribute);
  // Writes the plan file of the method.
  void write_plan(const std::string& text);

 private:
  struct Folder;
  // Returns the folder of the module; decides on it at the first call.
  static std::shared_ptr<Folder> folder_of(const c10::intrusive_ptr<c10::ivalue::Object>& module,
                                           const std::string& class_name);
  template <typename Function>
  void attempt(const Function& function);

  const c10::intrusive_ptr<c10::ivalue::Object> module_;
  const std::string class_name_;
  const std::string method_;
  std::mutex mutex_;
  std::shared_ptr<Folder> folder_;  // nullptr until something is written
  std::set<std::weak_ptr<const CompiledRegion>, std::owner_less<>> written_;
  std::map<std::pair<size_t, size_t>, size_t> num_variants_;  // by specialization and region
};

}  // namespace aten_recompute
