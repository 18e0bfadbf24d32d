# What `cmake --install` puts where: libraries, programs, headers, and what finds them again (CMake, pkg-config).
include(CMakePackageConfigHelpers)
set(installed_libraries sennit sennit_nccl)
if(TARGET sennit_mpi)
  list(APPEND installed_libraries sennit_mpi)
endif()
install(TARGETS nccl_forwarder sennit_bindings LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/sennit)
install(TARGETS ${installed_libraries} EXPORT sennitTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(program sennit_command sennit_trainer_command openmpi_perf gloo_perf)
  if(TARGET ${program})
    install(TARGETS ${program} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  endif()
endforeach()
install(DIRECTORY include/sennit DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(EXPORT sennitTargets NAMESPACE sennit:: FILE sennitTargets.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/sennit)
file(WRITE ${CMAKE_BINARY_DIR}/sennitConfig.cmake "include(\"\${CMAKE_CURRENT_LIST_DIR}/sennitTargets.cmake\")\n")
write_basic_package_version_file(${CMAKE_BINARY_DIR}/sennitConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/sennitConfig.cmake ${CMAKE_BINARY_DIR}/sennitConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/sennit)
# Whatever --prefix the installation has.
file(RELATIVE_PATH up_from_pkgconfig "/p/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/p")
file(CONFIGURE OUTPUT sennit.pc @ONLY CONTENT [[
prefix=${pcfiledir}/@up_from_pkgconfig@
libdir=${prefix}/@CMAKE_INSTALL_LIBDIR@
includedir=${prefix}/@CMAKE_INSTALL_INCLUDEDIR@

Name: sennit
Description: Topology-aware collective communication
Version: @PROJECT_VERSION@
Libs: -L${libdir} -lsennit
Cflags: -I${includedir}
]])
install(FILES ${CMAKE_BINARY_DIR}/sennit.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
