// Wraps PyTorch's own Python functions that would fail on lowered modules or not treat them fully.
// Each is wrapped once. In a process without Python nothing happens.
//
// torch._C._jit_to_backend works on a deep copy of the module. The lowered module would train
// copies of the buffers (and of frozen parameters), and the running statistics of the original
// module would never change. The copy is made before a backend's preprocess is called, so a backend
// cannot undo it. For this backend, the wrapper first unlowers what is lowered already, and
// afterward puts the tensors of the given module back.
//
// torch._C._freeze_module cannot handle lowered modules. The wrapper passes it the plain module. It
// inlines functions, of which enabled ones become plain meanwhile.
//
// Errors of lowered modules are shortened to one line. Where the Python package is imported, its
// classes are raised, otherwise RuntimeError.
#include <dlfcn.h>

namespace aten_recompute {
namespace {

constexpr const char* kWrap = R"PY(
def _aten_recompute_wrap():
    import functools
    import torch
    import sys
    ours = torch.ops.aten_recompute

    def error_of_call(message):
        package = sys.modules.get("aten_recompute._errors")
        return RuntimeError(message) if package is None else package.error_of_call(message)

    def wrap(owner, name, wrapper):
        original = getattr(owner, name)
        if not getattr(original, "_knows_aten_recompute", False):
            wrapped = functools.wraps(original)(wrapper(original))
            wrapped._knows_aten_recompute = True
            setattr(owner, name, wrapped)

    def in_one_line(original):
        def call(*args, **kwargs):
            try:
                return original(*args, **kwargs)
            except RuntimeError as error:
                _, found, message = str(error).rpartition("\nRuntimeError: aten_recompute: ")
                if not found:
                    raise
                line = message.split("\n", 1)[0]
            raise error_of_call("aten_recompute: " + line)
        return call

    def to_backend(original):
        original = in_one_line(original)
        def call(backend_name, orig_module, method_compile_spec):
            if backend_name != "aten_recompute":
                return original(backend_name, orig_module, method_compile_spec)
            if ours.holds_lowered(orig_module._c):
                orig_module = torch.jit._recursive.wrap_cpp_module(ours.unlower(orig_module._c))
            lowered = original(backend_name, orig_module, method_compile_spec)
            ours.share_tensors(orig_module._c, lowered._c)
            return lowered
        return call

    def freeze_module(original):
        def call(module, *args, **kwargs):
            ours.inline_plans(False)
            try:
                return original(ours.unlower(module), *args, **kwargs)
            finally:
                ours.inline_plans(True)
        return call

    wrap(torch._C, "_jit_to_backend", to_backend)
    wrap(torch._C, "_freeze_module", freeze_module)
    for owner, name in (
        (torch._C.ScriptMethod, "__call__"),
        (torch._C.ScriptFunction, "__call__"),
        (torch._C, "import_ir_module"),
        (torch._C, "import_ir_module_from_buffer"),
    ):
        wrap(owner, name, in_one_line)
_aten_recompute_wrap()
del _aten_recompute_wrap
)PY";

template <class Function>
Function* symbol(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

const bool kWrapped = [] {
  auto* is_initialized = symbol<int()>("Py_IsInitialized");
  auto* ensure = symbol<int()>("PyGILState_Ensure");
  auto* release = symbol<void(int)>("PyGILState_Release");
  auto* run = symbol<int(const char*, void*)>("PyRun_SimpleStringFlags");
  if (is_initialized == nullptr || ensure == nullptr || release == nullptr || run == nullptr ||
      is_initialized() == 0) {
    return false;
  }
  const int state = ensure();
  const bool done = run(kWrap, nullptr) == 0;
  release(state);
  return done;
}();

}  // namespace
}  // namespace aten_recompute
