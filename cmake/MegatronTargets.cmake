# megatron_library(NAME SOURCES ... [DEPS ...])   a folder of megatron/ as static library megatron_NAME
# megatron_test(NAME SOURCES ... DEPS ... [LABELS ...])   a GoogleTest binary; each of its tests is one ctest entry
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
endif()

add_library(megatron_flags INTERFACE)
target_compile_options(megatron_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wconversion;-Wno-sign-conversion;-Wno-missing-field-initializers;-Werror;-fno-math-errno;-ffp-contract=off>)
if(MEGATRON_SANITIZE)
  target_compile_options(megatron_flags INTERFACE -fsanitize=${MEGATRON_SANITIZE} -fno-omit-frame-pointer -g1
                                                  -fno-sanitize-recover=all)
  target_link_options(megatron_flags INTERFACE -fsanitize=${MEGATRON_SANITIZE})
endif()

function(megatron_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(megatron_${name} STATIC ${ARG_SOURCES})
  add_library(megatron::${name} ALIAS megatron_${name})
  target_include_directories(megatron_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                     $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(megatron_${name} PUBLIC ${ARG_DEPS} PRIVATE $<BUILD_INTERFACE:megatron_flags>)
  set_property(GLOBAL APPEND PROPERTY MEGATRON_LIBRARIES megatron_${name})
endfunction()

function(megatron_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE MEGATRON_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} megatron_flags GTest::gtest GTest::gmock GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT 600)
endfunction()
