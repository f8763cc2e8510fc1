# The CUDA language and toolkit, for all folders.
set(CMAKE_CUDA_ARCHITECTURES 90a-real CACHE STRING "CUDA architectures")
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)
# CMake 3.25 does not know that nvcc 12 and later speak C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
