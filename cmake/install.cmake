# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# What `cmake --install` puts where; included by CMakeLists.txt. Nothing of it knows its
# prefix: the library finds its engine beside itself, the CMake package and xsock.pc theirs from
# their own place, so that the folder may be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(TARGETS xsock EXPORT xsockTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
                                          INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
set(linked)
if(XSOCK_SANITIZE OR XSOCK_FUZZ)
    set(linked EXPORT xsockTargets)  # libxsock.so is linked to the engine, and nothing is preloaded
endif()
foreach(part xsock_engine xsock_preload xsock_rdma_files)
    if(TARGET ${part})
        install(TARGETS ${part} ${linked} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/xsock)
    endif()
endforeach()
if(TARGET drop_in_ibverbs)
    # A folder of their own: they must not be found unless asked for.
    install(TARGETS drop_in_ibverbs drop_in_rdmacm
            LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}/xsock/verbs)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/xsock
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/LICENSES/BSD-2-Clause.txt
              ${PROJECT_SOURCE_DIR}/LICENSES/GPL-2.0-only.txt
        DESTINATION ${CMAKE_INSTALL_DOCDIR})

file(GLOB man_pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/man/*.[1-8])
foreach(page ${man_pages})
    string(REGEX MATCH "[1-8]$" part ${page})
    install(FILES ${page} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${part})
endforeach()

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/xsock)
install(EXPORT xsockTargets NAMESPACE xsock:: DESTINATION ${package_folder})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/xsockConfig.cmake.in
                              ${CMAKE_CURRENT_BINARY_DIR}/xsockConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/xsockConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/xsockConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/xsockConfigVersion.cmake
        DESTINATION ${package_folder})

# From lib/pkgconfig up to the prefix; a multiarch folder lies one deeper.
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX
           BASE_DIRECTORY ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig OUTPUT_VARIABLE up)
set(XSOCK_PC_PREFIX "\${pcfiledir}/${up}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/xsock.pc.in ${CMAKE_CURRENT_BINARY_DIR}/xsock.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/xsock.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
