// The attributes that a method reads and sets while its path is recorded.
#pragma once

#include <ATen/core/ivalue.h>

#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "passes/frontend/path/apart_memory.h"
#include "passes/frontend/path/caller_writes.h"
#include "passes/frontend/path/path_builder.h"
#include "passes/frontend/rewrites/fold_attributes.h"

namespace aten_recompute {

class MetaRun;

// Keeps what each attribute holds at this point of the method, and what the path depends on of the
// attributes: the values of numbers, strings and None, the structure of containers, which objects
// are the same, and the types of tensors once something is concluded from them.
class PathAttributes {
 public:
  // `self` is the module. The next two need to outlive this object: reads are added to the path,
  // and attributes that are set are remembered as changes. The path computes with copies of the
  // tensors in `carried`, to which it writes, and writes them back at its end; it reads the numbers
  // in `changing` in each call. `meta_run` has what stands for tensors; nullptr if they stand for
  // themselves.
  PathAttributes(const c10::intrusive_ptr<c10::ivalue::Object>& self, PathBuilder& builder,
                 CallerWrites& writes, AttributePaths carried = {}, AttributePaths changing = {},
                 MetaRun* meta_run = nullptr);

  // Notes which attributes the graph sets. Their values may change within a call, so the path does
  // not depend on what they are before it.
  void add_set_names(torch::jit::Graph& graph);

  // Returns what the attribute holds; the method reads it as a value of type `read_as`. Throws
  // NotRecordable for a container of an object that the method was given (the path could not depend
  // on its structure), and for a value that is no object.
  Item& get(const Item& object, const std::string& name, const c10::TypePtr& read_as);
  // Runs a SetAttr node on these operands.
  void set(torch::jit::Node* node, const Item& object, const Item& value);

  // Makes the path depend on rank, dtype and device of all tensors that were read so far: those of
  // everything that the path computed follow from them.
  void require_types();

  // Writes back what was computed in place of the tensors that are carried. Throws NotRecordable
  // where one of them shares memory with something else that the method was given.
  void write_back();
  // Returns the paths of those tensors, and of the others that were read; none if nothing is
  // carried. No two of them, and no input, may share memory in a call.
  ApartFrom apart() const;

  // Returns what the path depends on.
  const std::vector<FoldedAttribute>& required() const { return required_; }

 private:
  using Object = c10::ivalue::Object;
  using Path = std::vector<std::string>;  // names, from the module

  // A tensor that the path writes back.
  struct Carried {
    Path path;
    at::Tensor tensor;
    int64_t version;  // before the call
    torch::jit::Value* attribute;
    torch::jit::Value* copy;
  };

  Item carry(const Path& path, const at::Tensor& tensor, torch::jit::Value* attribute);
  Item read(const Item& object, const std::string& name, const c10::TypePtr& read_as);
  // Makes the path depend on the structure of an attribute.
  void require_structure(const Path& path, const c10::IValue& value);
  // Makes the path depend on whether two attributes are one object.
  void require_identity(const Path& path, const Path& other, bool is_same);
  // Makes the path depend on this object being no other object whose attribute `name` was read:
  // what is set in one is not seen in the others.
  void require_others_to_differ(const Object* object, const std::string& name);
  // Notes how objects are reached from the module, those in containers included.
  void add_objects(const c10::IValue& value, const Path& path);

  PathBuilder& builder_;
  CallerWrites& writes_;
  MetaRun* meta_run_;
  AttributePaths to_carry_;
  AttributePaths changing_;
  std::vector<Carried> carried_;
  std::vector<FoldedAttribute> required_;
  std::unordered_set<std::string> set_names_;
  std::map<std::pair<const Object*, std::string>, Item> attributes_;
  std::unordered_map<const Object*, Path> paths_;
  std::vector<std::pair<Path, c10::IValue>> tensors_;  // attributes that were read
  size_t num_required_tensors_ = 0;                    // those that the path depends on
};

}  // namespace aten_recompute
