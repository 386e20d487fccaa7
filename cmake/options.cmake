# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Warnings and sanitizers, for every target of the project.
add_compile_options(-Wall -Wextra -Wshadow $<$<COMPILE_LANGUAGE:CXX>:-Wconversion>
                    -Wno-sign-conversion)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    # At -O3 g++ 12 sees an overlap in every `"text" + std::string` (GCC bug 105329).
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-restrict>)
endif()
if(XSOCK_WERROR)
    add_compile_options(-Werror)
endif()
if(XSOCK_SANITIZE)
    add_compile_options(-fsanitize=${XSOCK_SANITIZE} -fno-omit-frame-pointer
                        -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${XSOCK_SANITIZE})
endif()
if(XSOCK_SANITIZE MATCHES "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # Our fences stand behind release stores that ThreadSanitizer does understand.
    add_compile_options(-Wno-tsan)
endif()
if(XSOCK_FUZZ)
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# The engine is optimised across its folders at link time: many of its calls are a few instructions
# long and cross one. Fat objects keep tests linking as fast as before.
function(xsock_lto_objects target)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT XSOCK_SANITIZE AND NOT XSOCK_FUZZ AND
       NOT CMAKE_CROSSCOMPILING AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
        target_compile_options(${target} PRIVATE -flto -ffat-lto-objects)
    endif()
endfunction()
function(xsock_lto_link target)
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
        target_link_options(${target} PRIVATE -flto=auto -O2)
    endif()
endfunction()
