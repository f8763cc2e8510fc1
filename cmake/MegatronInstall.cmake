# The CMake package: find_package(megatron) gives megatron::core, which links every folder of megatron/.
