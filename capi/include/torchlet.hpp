// torchlet for C++: what a program in C++17 needs to open and run programs that were exported with ExecuTorch.
//
// Names, namespaces and calls are those of ExecuTorch's C++ runtime where it has them, so that porting is a search and replace:
// `executorch::` becomes `torchlet::`, and the includes become this one. PORTING.md lists what else differs. Everything is in this
// header and those beside it, over the functions of torchlet.h; nothing throws.
//
// Start reading at torchlet/module.hpp.

#ifndef TORCHLET_HPP
#define TORCHLET_HPP

#include "torchlet/etdump.hpp"
#include "torchlet/module.hpp"
#include "torchlet/runtime.hpp"
#include "torchlet/tensor_ptr.hpp"

#endif
