# What is installed besides the library and the command, and the packages: `cmake --build build --target package` makes a
# .tar.gz, a .deb and, where rpmbuild is, an .rpm. All of them hold the same files under /usr.
include(CMakePackageConfigHelpers)

install(FILES ${PROJECT_SOURCE_DIR}/docs/cupool.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
install(FILES ${PROJECT_SOURCE_DIR}/include/cupool/cupool.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cupool)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs
        FILES_MATCHING PATTERN "*.md" PATTERN "*.json")
install(FILES ${PROJECT_SOURCE_DIR}/src/tools/completion/cupool.bash
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME cupool)
install(FILES ${PROJECT_SOURCE_DIR}/src/tools/completion/_cupool DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)

# For programs that use cupool/cupool.h: a header with weak symbols, nothing to link.
configure_file(${PROJECT_SOURCE_DIR}/cmake/cupool.pc.in ${PROJECT_BINARY_DIR}/generated/cupool.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/generated/cupool.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/cupoolConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/generated/cupoolConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/cupool
                              PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/generated/cupoolConfigVersion.cmake COMPATIBILITY SameMajorVersion)
install(FILES ${PROJECT_BINARY_DIR}/generated/cupoolConfig.cmake ${PROJECT_BINARY_DIR}/generated/cupoolConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/cupool)

# LD_PRELOAD=libcupool.so without a path needs the loader's cache; an installation into a package needs nothing yet.
install(CODE [[
  if(NOT DEFINED ENV{DESTDIR} AND CMAKE_INSTALL_PREFIX MATCHES "^/usr(/local)?$")
    execute_process(COMMAND ldconfig RESULT_VARIABLE result OUTPUT_QUIET ERROR_QUIET)
    if(NOT result EQUAL 0)
      message(STATUS "Run ldconfig as root, so that LD_PRELOAD=libcupool.so works without a path.")
    endif()
  elseif(NOT DEFINED ENV{DESTDIR} AND NOT CMAKE_INSTALL_PREFIX MATCHES "_CPack_Packages")
    message(STATUS "The loader does not look there by itself: cupool run -- app, or LD_PRELOAD with the whole path.")
  endif()
]])

set(CPACK_PACKAGE_NAME cupool)
# For dpkg and rpm a tilde comes before the release itself.
string(REPLACE - "~" CPACK_PACKAGE_VERSION ${cupool_version})
set(CPACK_PACKAGE_VENDOR "cupool")
set(CPACK_PACKAGE_CONTACT "cupool maintainers <maintainers@cupool.example>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Caching GPU memory pool under unmodified CUDA programs")
set(CPACK_PACKAGE_DESCRIPTION
    "Preloaded in front of a CUDA program, libcupool.so serves device memory from a pool: allocations stop costing a trip to\n"
    "the driver, frees stop stalling the GPU. The cupool command runs programs with it and explains what it did.")
string(REPLACE ";" " " CPACK_PACKAGE_DESCRIPTION "${CPACK_PACKAGE_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_GENERATOR TGZ DEB)
find_program(CUPOOL_RPMBUILD rpmbuild)
if(CUPOOL_RPMBUILD)
  list(APPEND CPACK_GENERATOR RPM)
endif()
set(CPACK_PACKAGE_FILE_NAME cupool-${cupool_version}-linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR}/packages)

# Worked out by the tests from the versions that the files need (tests/checks/elf.py), not by the build machine's own.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.28)")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libdw1")
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/triggers)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
if(CMAKE_CROSSCOMPILING)
  string(REPLACE x86_64 amd64 CPACK_DEBIAN_PACKAGE_ARCHITECTURE ${CMAKE_SYSTEM_PROCESSOR})
  string(REPLACE aarch64 arm64 CPACK_DEBIAN_PACKAGE_ARCHITECTURE ${CPACK_DEBIAN_PACKAGE_ARCHITECTURE})
  set(CPACK_RPM_PACKAGE_ARCHITECTURE ${CMAKE_SYSTEM_PROCESSOR})
endif()
set(CPACK_RPM_PACKAGE_LICENSE "Apache-2.0")
set(CPACK_RPM_PACKAGE_REQUIRES "glibc >= 2.28")
set(CPACK_RPM_PACKAGE_AUTOREQ OFF)
set(CPACK_RPM_POST_INSTALL_SCRIPT_FILE ${PROJECT_SOURCE_DIR}/cmake/ldconfig.sh)
set(CPACK_RPM_POST_UNINSTALL_SCRIPT_FILE ${PROJECT_SOURCE_DIR}/cmake/ldconfig.sh)
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION /usr/share/zsh /usr/share/zsh/site-functions
    /usr/share/bash-completion /usr/share/bash-completion/completions /usr/lib/cmake /usr/lib/pkgconfig
    /usr/share/man /usr/share/man/man1)
include(CPack)
