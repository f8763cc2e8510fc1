// megatron bench gemm|attention|ops|comm|step: measures this machine, and how close training comes to its limits.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

namespace megatron {

/// @param args the arguments after "bench". @return the exit status, see exit_code.h
int bench_command(const std::vector<std::string>& args, std::ostream& out, std::ostream& err);

}  // namespace megatron
