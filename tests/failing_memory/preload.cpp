// Lets a chosen request for memory fail that libaten_recompute.so makes: `operator new`, or mmap
// and posix_memalign, by which it gets arenas and blocks. Loaded with LD_PRELOAD, so that it stands
// before the C and C++ libraries; driven by ctypes (memory.py).
//
// Requests of other libraries never fail: LibTorch and Python are not what is tested. A request
// belongs to the library if its code is the caller, or called a function of the C++ library that
// is, such as one of std::string.
//
// It also counts the blocks that the library has allocated with `operator new` and that nobody has
// freed, whoever frees them.

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>
#include <unwind.h>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <unordered_map>

namespace {

constexpr int kNew = 1;
constexpr int kMaps = 2;

struct Range {
  std::uintptr_t begin = 0;
  std::uintptr_t end = 0;

  bool contains(const void* address) const {
    const auto place = reinterpret_cast<std::uintptr_t>(address);
    return begin <= place && place < end;
  }
};

Range library;      // libaten_recompute.so
Range cpp_library;  // libstdc++.so
std::uintptr_t library_base = 0;

std::atomic<int> armed_kinds{0};
std::atomic<std::int64_t> first_failure{0};  // 0: none
std::atomic<std::int64_t> num_requests{0};
std::atomic<bool> and_later{false};
std::atomic<bool> counts_blocks{false};
std::atomic<bool> prints_places{false};

// The table of live blocks must not use the operators that it counts.
template <class T>
struct PlainAllocator {
  using value_type = T;
  PlainAllocator() = default;
  template <class U>
  PlainAllocator(const PlainAllocator<U>&) {}
  T* allocate(std::size_t count) { return static_cast<T*>(std::malloc(count * sizeof(T))); }
  void deallocate(T* block, std::size_t) { std::free(block); }
  template <class U>
  bool operator==(const PlainAllocator<U>&) const {
    return true;
  }
};

struct Live {
  std::mutex mutex;
  std::unordered_map<void*, std::size_t, std::hash<void*>, std::equal_to<>,
                     PlainAllocator<std::pair<void* const, std::size_t>>>
      bytes_of;
};

// Never destroyed: blocks are freed until the process ends.
Live& live() {
  alignas(Live) static char memory[sizeof(Live)];
  static auto* const instance = ::new (static_cast<void*>(memory)) Live;
  return *instance;
}

struct Walk {
  int depth = 0;
  bool is_ours = false;
};

// Follows the stack out of the C++ library.
_Unwind_Reason_Code visit(_Unwind_Context* context, void* data) {
  auto& walk = *static_cast<Walk*>(data);
  constexpr int kDeepest = 16;
  const auto* const address = reinterpret_cast<const void*>(_Unwind_GetIP(context));
  if (library.contains(address)) {
    walk.is_ours = true;
    return _URC_END_OF_STACK;
  }
  // The first frames are those of this file.
  if (++walk.depth > kDeepest || (walk.depth > 3 && !cpp_library.contains(address)))
    return _URC_END_OF_STACK;
  return _URC_NO_REASON;
}

bool is_ours(const void* caller) {
  if (library.contains(caller))
    return true;
  if (!cpp_library.contains(caller))
    return false;
  Walk walk;
  _Unwind_Backtrace(visit, &walk);
  return walk.is_ours;
}

_Unwind_Reason_Code print_frame(_Unwind_Context* context, void* /*data*/) {
  const auto address = _Unwind_GetIP(context);
  if (library.contains(reinterpret_cast<const void*>(address)))
    std::fprintf(stderr, "  %#lx\n", static_cast<unsigned long>(address - library_base));
  return _URC_NO_REASON;
}

// Counts a request, and returns whether it has to fail.
bool must_fail(int kind) {
  if ((armed_kinds & kind) == 0)
    return false;
  const auto number = ++num_requests;
  const auto first = first_failure.load();
  const bool fails = first > 0 && (number == first || (and_later && number > first));
  if (fails && prints_places)
    _Unwind_Backtrace(print_frame, nullptr);
  return fails;
}

// Returns nullptr where there is no memory, or the request has to fail.
void* allocate(std::size_t bytes, std::size_t alignment, const void* caller) {
  const bool looks = armed_kinds != 0 || counts_blocks;
  const bool ours = looks && is_ours(caller);
  if (ours && must_fail(kNew))
    return nullptr;
  bytes = bytes == 0 ? 1 : bytes;
  void* const block =
      alignment == 0
          ? std::malloc(bytes)
          : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  if (ours && counts_blocks && block != nullptr) {
    const std::lock_guard<std::mutex> lock(live().mutex);
    live().bytes_of[block] = bytes;
  }
  return block;
}

void release(void* block) {
  if (block == nullptr)
    return;
  if (counts_blocks) {
    const std::lock_guard<std::mutex> lock(live().mutex);
    live().bytes_of.erase(block);
  }
  std::free(block);
}

void* allocate_or_throw(std::size_t bytes, std::size_t alignment, const void* caller) {
  if (void* const block = allocate(bytes, alignment, caller))
    return block;
  throw std::bad_alloc();
}

template <class Function>
Function next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

int note_range(dl_phdr_info* info, std::size_t /*size*/, void* /*data*/) {
  Range* range = nullptr;
  if (std::strstr(info->dlpi_name, "libaten_recompute.so") != nullptr)
    range = &library;
  else if (std::strstr(info->dlpi_name, "libstdc++.so") != nullptr)
    range = &cpp_library;
  if (range == nullptr)
    return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const auto& header = info->dlpi_phdr[i];
    if (header.p_type != PT_LOAD || (header.p_flags & PF_X) == 0)
      continue;
    range->begin = info->dlpi_addr + header.p_vaddr;
    range->end = range->begin + header.p_memsz;
    if (range == &library)
      library_base = info->dlpi_addr;
  }
  return 0;
}

}  // namespace

#define CALLER __builtin_return_address(0)

void* operator new(std::size_t bytes) {
  return allocate_or_throw(bytes, 0, CALLER);
}
void* operator new[](std::size_t bytes) {
  return allocate_or_throw(bytes, 0, CALLER);
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment), CALLER);
}
void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, static_cast<std::size_t>(alignment), CALLER);
}
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, 0, CALLER);
}
void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, 0, CALLER);
}
void operator delete(void* block) noexcept {
  release(block);
}
void operator delete[](void* block) noexcept {
  release(block);
}
void operator delete(void* block, std::size_t) noexcept {
  release(block);
}
void operator delete[](void* block, std::size_t) noexcept {
  release(block);
}
void operator delete(void* block, std::align_val_t) noexcept {
  release(block);
}
void operator delete[](void* block, std::align_val_t) noexcept {
  release(block);
}
void operator delete(void* block, std::size_t, std::align_val_t) noexcept {
  release(block);
}
void operator delete[](void* block, std::size_t, std::align_val_t) noexcept {
  release(block);
}

extern "C" {

void* mmap(void* address, std::size_t bytes, int protection, int flags, int file, off_t offset) {
  static const auto real = next<decltype(&mmap)>("mmap");
  if (armed_kinds != 0 && library.contains(CALLER) && must_fail(kMaps))
    return MAP_FAILED;
  return real(address, bytes, protection, flags, file, offset);
}

int posix_memalign(void** block, std::size_t alignment, std::size_t bytes) {
  static const auto real = next<decltype(&posix_memalign)>("posix_memalign");
  constexpr int kNoMemory = 12;  // ENOMEM
  if (armed_kinds != 0 && library.contains(CALLER) && must_fail(kMaps))
    return kNoMemory;
  return real(block, alignment, bytes);
}

// Finds the library, which has to be loaded. 0: found. 1: not found.
int failing_memory_find_library() {
  dl_iterate_phdr(note_range, nullptr);
  return library.begin == 0 || cpp_library.begin == 0 ? 1 : 0;
}

// Lets the n-th request of these kinds fail (1: operator new, 2: maps, or their sum), 1 being the
// next one, and with `all_later` all that come after it. n = 0 counts only; no kinds ends it.
void failing_memory_arm(int kinds, std::int64_t n, int all_later) {
  armed_kinds = 0;
  num_requests = 0;
  first_failure = n;
  and_later = all_later != 0;
  armed_kinds = kinds;
}

std::int64_t failing_memory_requests() {
  return num_requests;
}

// From now on the frames of the library are printed to stderr where a request fails, for
// `addr2line -Cfipe libaten_recompute.so`.
void failing_memory_print_places() {
  prints_places = true;
}

// From now on blocks of the library are counted.
void failing_memory_count_blocks() {
  counts_blocks = true;
}

std::int64_t failing_memory_live_blocks() {
  const std::lock_guard<std::mutex> lock(live().mutex);
  return static_cast<std::int64_t>(live().bytes_of.size());
}

}  // extern "C"
