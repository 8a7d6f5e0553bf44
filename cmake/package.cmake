# What is installed, and the packages: `cmake --build build --target package` makes a .tar.gz, a .deb and, where rpmbuild
# is, an .rpm. The parts that differ, above all the library's folder, are components of their own: `cmake --install` and
# the archive have "common" and "plain", the packages "common" and "deb" or "rpm" (cmake/package/cpack.cmake).
include(CMakePackageConfigHelpers)

install(TARGETS cupool_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT common)
install(FILES ${PROJECT_SOURCE_DIR}/include/cupool/cupool.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cupool COMPONENT common)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT common)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ DESTINATION ${CMAKE_INSTALL_DOCDIR}/docs COMPONENT common
        FILES_MATCHING PATTERN "*.md" PATTERN "*.json" PATTERN "*.png")
install(FILES ${PROJECT_SOURCE_DIR}/src/tools/completion/cupool.bash COMPONENT common
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME cupool)
install(FILES ${PROJECT_SOURCE_DIR}/src/tools/completion/_cupool DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions
        COMPONENT common)

# The library, and what finds it and the header for programs that use cupool/cupool.h: weak symbols, nothing to link.
set(read OWNER_READ GROUP_READ WORLD_READ)
set(execute OWNER_EXECUTE GROUP_EXECUTE WORLD_EXECUTE)
function(cupool_install_library component folder permissions)
  set(CMAKE_INSTALL_LIBDIR ${folder})
  set(made ${PROJECT_BINARY_DIR}/generated/${component})
  file(RELATIVE_PATH cupool_up /${folder}/pkgconfig /)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/cupool.pc.in ${made}/cupool.pc @ONLY)
  configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/cupoolConfig.cmake.in ${made}/cupoolConfig.cmake
                                INSTALL_DESTINATION ${folder}/cmake/cupool
                                PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
  write_basic_package_version_file(${made}/cupoolConfigVersion.cmake COMPATIBILITY SameMajorVersion)
  install(TARGETS cupool LIBRARY DESTINATION ${folder} PERMISSIONS OWNER_WRITE ${permissions} COMPONENT ${component} ${ARGN})
  install(FILES ${made}/cupool.pc DESTINATION ${folder}/pkgconfig COMPONENT ${component} ${ARGN})
  install(FILES ${made}/cupoolConfig.cmake ${made}/cupoolConfigVersion.cmake DESTINATION ${folder}/cmake/cupool
          COMPONENT ${component} ${ARGN})
endfunction()
cupool_install_library(plain ${CMAKE_INSTALL_LIBDIR} "${read};${execute}")
cupool_install_library(deb lib/${cupool_triplet} "${read}" EXCLUDE_FROM_ALL)
cupool_install_library(rpm lib64 "${read};${execute}" EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_SOURCE_DIR}/docs/cupool.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT plain)

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
]] COMPONENT plain)

# Whoever builds a package maintains it: asked as Debian's own tools do.
set(CUPOOL_MAINTAINER "" CACHE STRING "Name <address> of who maintains the packages; empty: DEBFULLNAME and DEBEMAIL, else git's user")
if(NOT CUPOOL_MAINTAINER AND DEFINED ENV{DEBFULLNAME} AND DEFINED ENV{DEBEMAIL})
  set(CUPOOL_MAINTAINER "$ENV{DEBFULLNAME} <$ENV{DEBEMAIL}>")
elseif(NOT CUPOOL_MAINTAINER AND CUPOOL_GIT)
  foreach(what name email)
    execute_process(COMMAND ${CUPOOL_GIT} -C ${PROJECT_SOURCE_DIR} config user.${what}
                    OUTPUT_VARIABLE git_${what} OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endforeach()
  if(git_name AND git_email)
    set(CUPOOL_MAINTAINER "${git_name} <${git_email}>")
  endif()
endif()
if(NOT CUPOOL_MAINTAINER)
  set(CUPOOL_MAINTAINER "nobody yet <nobody@cupool.invalid>")
  message(STATUS "Packages of this build name no maintainer: set CUPOOL_MAINTAINER to \"Name <address>\"")
endif()

set(CPACK_PACKAGE_NAME cupool)
# For dpkg and rpm a tilde comes before the release itself.
string(REPLACE - "~" CPACK_PACKAGE_VERSION ${cupool_version})
set(CPACK_PACKAGE_VENDOR "cupool")
set(CPACK_PACKAGE_CONTACT "${CUPOOL_MAINTAINER}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Caching GPU memory pool under unmodified CUDA programs")
set(CPACK_PACKAGE_DESCRIPTION
"Preloaded in front of a CUDA program, libcupool.so serves device memory from
a pool: allocations stop costing a trip to the driver, frees stop stalling
the GPU. The cupool command runs programs with it and explains what it did.")

# What only packages hold. Lintian and rpmlint find nothing to object to; a test runs them where they are installed.
find_program(CUPOOL_GZIP gzip REQUIRED)
set(made ${PROJECT_BINARY_DIR}/generated/package)
cupool_commit(cupool_commit ${PROJECT_SOURCE_DIR})
string(TIMESTAMP cupool_package_date "%a, %d %b %Y %H:%M:%S +0000" UTC)
configure_file(${PROJECT_SOURCE_DIR}/cmake/package/copyright.in ${made}/copyright @ONLY)
configure_file(${PROJECT_SOURCE_DIR}/cmake/package/changelog.in ${made}/changelog.Debian @ONLY)
configure_file(${PROJECT_SOURCE_DIR}/CHANGELOG.md ${made}/changelog COPYONLY)
configure_file(${PROJECT_SOURCE_DIR}/docs/cupool.1 ${made}/cupool.1 COPYONLY)
execute_process(COMMAND ${CUPOOL_GZIP} -9nfk ${made}/changelog ${made}/changelog.Debian ${made}/cupool.1 COMMAND_ERROR_IS_FATAL ANY)
foreach(kind deb rpm)
  install(FILES ${made}/cupool.1.gz DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT ${kind} EXCLUDE_FROM_ALL)
  install(FILES ${made}/copyright ${made}/changelog.gz DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT ${kind} EXCLUDE_FROM_ALL)
endforeach()
install(FILES ${made}/changelog.Debian.gz DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT deb EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/package/lintian-overrides RENAME cupool
        DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides COMPONENT deb EXCLUDE_FROM_ALL)

set(CPACK_PROJECT_CONFIG_FILE ${PROJECT_SOURCE_DIR}/cmake/package/cpack.cmake)
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

# The floor of glibc is held against the files by the tests (tests/checks/elf.py); it is not the build machine's own.
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.28)")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libdw1")
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/cmake/package/triggers)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
if(CMAKE_CROSSCOMPILING)
  string(REPLACE x86_64 amd64 CPACK_DEBIAN_PACKAGE_ARCHITECTURE ${CMAKE_SYSTEM_PROCESSOR})
  string(REPLACE aarch64 arm64 CPACK_DEBIAN_PACKAGE_ARCHITECTURE ${CPACK_DEBIAN_PACKAGE_ARCHITECTURE})
  set(CPACK_RPM_PACKAGE_ARCHITECTURE ${CMAKE_SYSTEM_PROCESSOR})
endif()
set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_DESCRIPTION "${CPACK_PACKAGE_DESCRIPTION}")
set(CPACK_RPM_PACKAGE_LICENSE "Apache-2.0")
set(CPACK_RPM_PACKAGE_REQUIRES "glibc >= 2.28")
set(CPACK_RPM_PACKAGE_AUTOREQ OFF)
# No links from /usr/lib/.build-id, where packages that bring the same file meet.
set(CPACK_RPM_SPEC_MORE_DEFINE "%define packager ${CUPOOL_MAINTAINER}\n%define _build_id_links none")
set(CPACK_RPM_POST_INSTALL_SCRIPT_FILE ${PROJECT_SOURCE_DIR}/cmake/package/ldconfig.sh)
set(CPACK_RPM_POST_UNINSTALL_SCRIPT_FILE ${PROJECT_SOURCE_DIR}/cmake/package/ldconfig.sh)
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION /usr/share/zsh /usr/share/zsh/site-functions
    /usr/share/bash-completion /usr/share/bash-completion/completions /usr/lib64 /usr/lib64/cmake /usr/lib64/pkgconfig
    /usr/share/man /usr/share/man/man1)
include(CPack)
