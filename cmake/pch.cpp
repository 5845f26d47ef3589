// The source file of the precompiled LibTorch headers, which is empty on purpose. See
// `aten_recompute_pch` in CMakeLists.txt.
