// PyTorch's own to_backend, called from Python, works on a deep copy of the module: the lowered
// module would train copies of the buffers (and of frozen parameters), and the module that was
// lowered would never see its running statistics move. The copy is made before a backend's
// preprocess is called, so nothing that a backend implements can undo it. Where Python is in the
// process, torch._C._jit_to_backend is therefore wrapped once: for this backend the tensors of the
// given module are put back afterwards. In a process without Python nothing happens.
#include <dlfcn.h>

namespace aten_recompute {
namespace {

constexpr const char* kWrap = R"PY(
def _aten_recompute_wrap():
    import functools
    import torch
    original = torch._C._jit_to_backend
    if getattr(original, "_shares_tensors", False):
        return
    @functools.wraps(original)
    def _jit_to_backend(backend_name, orig_module, method_compile_spec):
        lowered = original(backend_name, orig_module, method_compile_spec)
        if backend_name == "aten_recompute":
            torch.ops.aten_recompute.share_tensors(orig_module._c, lowered._c)
        return lowered
    _jit_to_backend._shares_tensors = True
    torch._C._jit_to_backend = _jit_to_backend
_aten_recompute_wrap()
del _aten_recompute_wrap
)PY";

template <class Function>
Function* symbol(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_DEFAULT, name));
}

const bool wrapped = [] {
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
