# find_package(neurenix) gives the target neurenix::neurenix: the C API (neurenix/neurenix.h, libneurenix.so.1) of the Python
# package that this file lies in. Called with -Dneurenix_DIR=$(python -c "import neurenix.cpp as cpp; print(cpp.cmake_dir())").
get_filename_component(_neurenix_root "${CMAKE_CURRENT_LIST_DIR}/.." ABSOLUTE)
set(neurenix_INCLUDE_DIR "${_neurenix_root}/_include")
set(neurenix_LIBRARY "${_neurenix_root}/_lib/libneurenix.so.1")
# What has to lie beside a program that is taken elsewhere.
set(neurenix_LIBRARIES "${neurenix_LIBRARY}" "${_neurenix_root}/_lib/libdnnl.so.3" "${_neurenix_root}/_lib/libgomp.so.1")

include(FindPackageHandleStandardArgs)
if(NOT EXISTS "${neurenix_LIBRARY}")
  set(neurenix_LIBRARY neurenix_LIBRARY-NOTFOUND)
endif()
find_package_handle_standard_args(
  neurenix
  REQUIRED_VARS neurenix_LIBRARY neurenix_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "this installation has no ${_neurenix_root}/_lib/libneurenix.so.1: in a checkout, `just capi` makes it")

if(neurenix_FOUND AND NOT TARGET neurenix::neurenix)
  add_library(neurenix::neurenix SHARED IMPORTED)
  set_target_properties(
    neurenix::neurenix
    PROPERTIES IMPORTED_LOCATION "${neurenix_LIBRARY}"
               IMPORTED_SONAME libneurenix.so.1
               INTERFACE_INCLUDE_DIRECTORIES "${neurenix_INCLUDE_DIR}")
endif()
unset(_neurenix_root)
