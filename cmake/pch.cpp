// Owner of the precompiled LibTorch headers; deliberately empty. See `aten_recompute_pch` in
// CMakeLists.txt.
