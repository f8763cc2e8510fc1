// megatron bench gemm|attention|ops|comm|step: what this machine can do, and how near training comes to it.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace megatron {

/// @param args the words after "bench". @return the exit status, see exit_code.h
int bench_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err);

}  // namespace megatron
