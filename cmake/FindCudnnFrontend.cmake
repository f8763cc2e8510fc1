# cudnn-frontend and cuDNN's headers, for attention on CUDA. The library libcudnn.so.9 itself is loaded at run time.
#
#   CUDNN_FRONTEND_INCLUDE_DIR   folder of cudnn_frontend.h; scripts/install_dependencies.sh cuda puts one into .cache/
#   CUDNN_INCLUDE_DIR            folder of cudnn.h, where it is not in the CUDA toolkit
#
# Gives the target CudnnFrontend::CudnnFrontend.
find_path(CUDNN_FRONTEND_INCLUDE_DIR cudnn_frontend.h
          HINTS ${PROJECT_SOURCE_DIR}/.cache/cudnn-frontend/include
          DOC "Folder of cudnn_frontend.h")
find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS} DOC "Folder of cudnn.h")
if(CUDNN_INCLUDE_DIR)
  file(STRINGS ${CUDNN_INCLUDE_DIR}/cudnn_version.h cudnn_lines REGEX "#define CUDNN_(MAJOR|MINOR) +[0-9]+")
  string(REGEX REPLACE ".*MAJOR +([0-9]+).*MINOR +([0-9]+).*" "\\1.\\2" CudnnFrontend_CUDNN_VERSION "${cudnn_lines}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(CudnnFrontend REQUIRED_VARS CUDNN_FRONTEND_INCLUDE_DIR CUDNN_INCLUDE_DIR)
mark_as_advanced(CUDNN_FRONTEND_INCLUDE_DIR CUDNN_INCLUDE_DIR)
if(CudnnFrontend_FOUND AND NOT TARGET CudnnFrontend::CudnnFrontend)
  add_library(CudnnFrontend::CudnnFrontend INTERFACE IMPORTED)
  # cuDNN's folder is often /usr/local/include, which the compiler knows already.
  set_target_properties(CudnnFrontend::CudnnFrontend PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${CUDNN_FRONTEND_INCLUDE_DIR};${CUDNN_INCLUDE_DIR};${CUDAToolkit_INCLUDE_DIRS}"
    INTERFACE_COMPILE_DEFINITIONS "NV_CUDNN_FRONTEND_USE_DYNAMIC_LOADING;CUDNN_FRONTEND_SKIP_JSON_LIB"
    INTERFACE_LINK_LIBRARIES "${CMAKE_DL_LIBS}")
endif()
