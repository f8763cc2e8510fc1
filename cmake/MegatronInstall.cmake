# The CMake package: find_package(megatron) gives megatron::core, which links every folder of megatron/, and
# megatron::program, the commands.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/megatron)
get_property(libraries GLOBAL PROPERTY MEGATRON_LIBRARIES)

# Users link megatron::core; the folders are parts of it and carry names that do not clash with it.
set_target_properties(megatron_all PROPERTIES EXPORT_NAME core)
set_target_properties(megatron_commands PROPERTIES EXPORT_NAME program)
set_target_properties(megatron_rank_failures PROPERTIES EXPORT_NAME rank_failures)
foreach(library IN LISTS libraries)
  string(REPLACE "megatron_" "folder_" export_name ${library})
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${export_name})
endforeach()
install(TARGETS megatron_all megatron_commands megatron_rank_failures ${libraries} EXPORT megatron-targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT megatron-targets NAMESPACE megatron:: DESTINATION ${package_dir})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/megatron ${PROJECT_SOURCE_DIR}/commands DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")

set(megatron_has_sentencepiece OFF)
if(sentencepiece_FOUND)
  set(megatron_has_sentencepiece ON)
endif()
set(megatron_has_zstd OFF)
if(zstd_FOUND)
  set(megatron_has_zstd ON)
endif()
# The installed package finds the same third-party packages, by the same file, as this build did.
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/megatron-config.cmake.in
                              ${CMAKE_CURRENT_BINARY_DIR}/megatron-config.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/megatron-config-version.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/megatron-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/megatron-config-version.cmake
              ${PROJECT_SOURCE_DIR}/cmake/MegatronDependencies.cmake
        DESTINATION ${package_dir})
