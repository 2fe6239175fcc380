# The rules of `cmake --install`, and the package file of find_package(vedette).
#
# One set of targets a component: vedette::vedette always, vedette::profiler and vedette::torch when asked for, so
# that a program without libtorch or SQLite needs neither.
include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/vedette)
target_compile_features(vedette PUBLIC cxx_std_20)

function(install_component component target headers)
  install(TARGETS ${target} EXPORT vedette-${component}-targets FILE_SET HEADERS DESTINATION ${headers})
  install(EXPORT vedette-${component}-targets NAMESPACE vedette:: DESTINATION ${package_folder})
endfunction()

install_component(core vedette ${CMAKE_INSTALL_INCLUDEDIR})
# Its headers are "profiler/recorder.h" in the tree: a folder of ours keeps that name from clashing in /usr/include.
install_component(profiler vedette_profiler ${CMAKE_INSTALL_INCLUDEDIR}/vedette)
if(TARGET vedette_torch)
  install_component(torch vedette_torch ${CMAKE_INSTALL_INCLUDEDIR})
  install(FILES ${PROJECT_SOURCE_DIR}/cmake/FindVedetteTorch.cmake DESTINATION ${package_folder})
endif()
if(TARGET vedette_torch_cuda)  # a guard of GPU memory loads it; programs find it by the rpath of vedette::torch
  install(TARGETS vedette_torch_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  target_link_options(vedette_torch INTERFACE
    $<INSTALL_INTERFACE:LINKER:-rpath,$<INSTALL_PREFIX>/${CMAKE_INSTALL_LIBDIR}>)
endif()
if(TARGET vedette_cli)
  install(TARGETS vedette_cli)
endif()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/vedette)

get_property(torch_minor GLOBAL PROPERTY VEDETTE_TORCH_MINOR)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/vedette-config.cmake.in
  ${PROJECT_BINARY_DIR}/vedette-config.cmake
  INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/vedette-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/vedette-config.cmake ${PROJECT_BINARY_DIR}/vedette-config-version.cmake
  DESTINATION ${package_folder})
