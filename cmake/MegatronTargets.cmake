# megatron_library(NAME SOURCES ... [DEPS ...] [OPTIMIZE -O3])   a folder of megatron/ as static library megatron_NAME
# megatron_test(NAME SOURCES ... DEPS ... [LABELS ...] [OPTIMIZE -O1])   a GoogleTest binary; each of its tests is one ctest
#                                           entry, and the target tests_LABEL builds all binaries with that label
# megatron_test_library(NAME SOURCES ... DEPS ...)   what several tests share, compiled once: a name for their DEPS
# megatron_mpi_test(NAME RANKS N SOURCES ... DEPS ...)   a GoogleTest binary with its own main(); one ctest entry, labelled
#                                                         mpi, runs it as N processes; skipped without Open MPI's mpirun
# In DEPS, megatron::NAME is that folder. Elsewhere megatron::core is all folders together, as for users of the package.
#
# OPTIMIZE is the level of a release build: -O2 by default, which compiles in three quarters of the time that -O3 needs; -O3 where loops
# run over elements, characters or bytes; -O1 where nothing runs more than once a step. Tests have the level of their folder,
# MEGATRON_OPTIMIZE_TESTS, by default. MEGATRON_OPTIMIZE is one level for all libraries and commands.
include(MegatronUnity)
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
# Errors for the compiler that CI has; what newer ones warn about keeps nobody from building.
set(warnings_are_errors $<$<AND:$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Werror>)
target_compile_options(megatron_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wconversion;-Wno-sign-conversion;-Wno-missing-field-initializers;${warnings_are_errors};-fno-math-errno;-ffp-contract=off>)
# g++ 12 at -O3 sees a write of one byte into nothing in fmt 9's reading of fill characters, and overlapping copies in
# std::string's operator+ (GCC bug 105651); there are none.
target_compile_options(megatron_flags INTERFACE $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-stringop-overflow;-Wno-restrict;-Wno-maybe-uninitialized>)
if(MEGATRON_SANITIZE)
  # g++ takes values for uninitialised that its sanitizers' instrumentation only makes look so.
  target_compile_options(megatron_flags INTERFACE -fsanitize=${MEGATRON_SANITIZE} -fno-omit-frame-pointer -g1
                                                  -fno-sanitize-recover=all)
  # What the address sanitizer finds too, and misaligned reads, which x86 allows: half of the time to compile. Fuzzers have them.
  if(MEGATRON_SANITIZE MATCHES "address.*undefined" AND NOT MEGATRON_FUZZ)
    target_compile_options(megatron_flags INTERFACE -fno-sanitize=null,alignment,object-size,vptr)
  endif()
  target_link_options(megatron_flags INTERFACE -fsanitize=${MEGATRON_SANITIZE})
endif()
if(MEGATRON_FUZZ)
  target_compile_options(megatron_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()

function(megatron_optimize target level)
  target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CONFIG:Release>>:${level}>)
endfunction()

function(megatron_optimize_library target level)
  if(MEGATRON_OPTIMIZE)
    set(level ${MEGATRON_OPTIMIZE})
  endif()
  megatron_optimize(${target} ${level})
endfunction()

function(megatron_library name)
  cmake_parse_arguments(ARG "" "OPTIMIZE" "SOURCES;DEPS" ${ARGN})
  if(NOT ARG_OPTIMIZE)
    set(ARG_OPTIMIZE -O2)
  endif()
  list(TRANSFORM ARG_DEPS REPLACE "^megatron::" "megatron_")
  add_library(megatron_${name} STATIC ${ARG_SOURCES})
  megatron_optimize_library(megatron_${name} ${ARG_OPTIMIZE})
  megatron_compile_together(megatron_${name} ${ARG_SOURCES})
  target_include_directories(megatron_${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                                     $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(megatron_${name} PUBLIC ${ARG_DEPS} PRIVATE $<BUILD_INTERFACE:megatron_flags>)
  set_property(GLOBAL APPEND PROPERTY MEGATRON_LIBRARIES megatron_${name})
endfunction()

add_library(megatron_test_flags INTERFACE)
target_include_directories(megatron_test_flags INTERFACE ${PROJECT_SOURCE_DIR})
target_link_libraries(megatron_test_flags INTERFACE megatron_flags)
if(MEGATRON_TESTS)
  target_link_libraries(megatron_test_flags INTERFACE GTest::gtest GTest::gmock megatron_source_tree)
endif()

function(megatron_test_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  list(TRANSFORM ARG_DEPS REPLACE "^megatron::" "megatron_")
  add_library(${name} STATIC ${ARG_SOURCES})
  megatron_optimize(${name} ${MEGATRON_OPTIMIZE_TESTS})
  megatron_compile_together(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} PRIVATE megatron_test_flags)
endfunction()

function(megatron_test name)
  cmake_parse_arguments(ARG "" "OPTIMIZE" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT ARG_OPTIMIZE)
    set(ARG_OPTIMIZE ${MEGATRON_OPTIMIZE_TESTS})
  endif()
  list(TRANSFORM ARG_DEPS REPLACE "^megatron::" "megatron_")
  add_executable(${name} ${ARG_SOURCES})
  megatron_optimize(${name} ${ARG_OPTIMIZE})
  megatron_compile_together(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} megatron_test_flags GTest::gtest_main)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
                       PROPERTIES TIMEOUT 600 ENVIRONMENT "XDG_CACHE_HOME=${CMAKE_BINARY_DIR}/cache")
  # gtest_discover_tests cannot pass a property of several values.
  set(labels_file ${CMAKE_CURRENT_BINARY_DIR}/${name}_labels.cmake)
  file(WRITE ${labels_file}
       "if(${name}_TESTS)\n  set_tests_properties(\${${name}_TESTS} PROPERTIES LABELS \"${ARG_LABELS}\")\nendif()\n")
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${labels_file})
  foreach(label IN LISTS ARG_LABELS)
    if(NOT TARGET tests_${label})
      add_custom_target(tests_${label})
    endif()
    add_dependencies(tests_${label} ${name})
  endforeach()
endfunction()

function(megatron_mpi_test name)
  cmake_parse_arguments(ARG "" "RANKS" "SOURCES;DEPS" ${ARGN})
  list(TRANSFORM ARG_DEPS REPLACE "^megatron::" "megatron_")
  add_executable(${name} ${ARG_SOURCES})
  megatron_optimize(${name} ${MEGATRON_OPTIMIZE_TESTS})
  megatron_compile_together(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} megatron_test_flags)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  add_test(NAME ${name} COMMAND ${PROJECT_SOURCE_DIR}/tests/system/mpirun.sh ${ARG_RANKS} $<TARGET_FILE:${name}>)
  set_tests_properties(${name} PROPERTIES LABELS mpi SKIP_RETURN_CODE 77 TIMEOUT 600
                                                PROCESSORS ${ARG_RANKS})
  if(NOT TARGET tests_mpi)
    add_custom_target(tests_mpi)
  endif()
  add_dependencies(tests_mpi ${name})
endfunction()
