# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Warnings and sanitizers, for every target of the project.
add_compile_options(-Wall -Wextra -Wshadow $<$<COMPILE_LANGUAGE:CXX>:-Wconversion>
                    -Wno-sign-conversion)
if(XSOCK_WERROR)
    add_compile_options(-Werror)
endif()
if(XSOCK_SANITIZE)
    add_compile_options(-fsanitize=${XSOCK_SANITIZE} -fno-omit-frame-pointer
                        -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${XSOCK_SANITIZE})
endif()
if(XSOCK_FUZZ)
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()
