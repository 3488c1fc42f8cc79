# Toolchain file for aarch64 Linux: the cross compiler of Debian and Ubuntu, and QEMU's user mode to run the programs.
# scripts/test-aarch64 puts cmocka for aarch64 below TDICT_AARCH64_ROOT.

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

set(TDICT_AARCH64_ROOT "${CMAKE_CURRENT_LIST_DIR}/../build/aarch64-root" CACHE PATH "The folder of libraries for aarch64")
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES TDICT_AARCH64_ROOT)
file(REAL_PATH "${TDICT_AARCH64_ROOT}" tdict_root)
set(ENV{PKG_CONFIG_SYSROOT_DIR} ${tdict_root})
set(ENV{PKG_CONFIG_LIBDIR} ${tdict_root}/usr/lib/aarch64-linux-gnu/pkgconfig)
unset(ENV{PKG_CONFIG_PATH})

# Headers and libraries of this machine must not be found. Programs, such as python3, are this machine's.
set(CMAKE_FIND_ROOT_PATH ${tdict_root} /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64 -L /usr/aarch64-linux-gnu
    -E LD_LIBRARY_PATH=${tdict_root}/usr/lib/aarch64-linux-gnu)
