# Cross-building for aarch64 with Debian's g++-aarch64-linux-gnu; tools/arm64_sysroot.sh fills the folder of libraries,
# tests run under qemu-user: make test-arm64.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)

set(arm64_libraries "${CMAKE_CURRENT_LIST_DIR}/../build/arm64-libraries")
get_filename_component(arm64_libraries "${arm64_libraries}" ABSOLUTE)
set(CMAKE_FIND_ROOT_PATH "${arm64_libraries}" /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
# C library and compiler come from /usr/aarch64-linux-gnu; what those folders lack is looked for here.
set(CMAKE_CXX_FLAGS_INIT "-isystem ${arm64_libraries}/usr/include")
foreach(kind EXE SHARED MODULE)
  set(CMAKE_${kind}_LINKER_FLAGS_INIT "-Wl,-rpath-link,${arm64_libraries}/usr/lib/aarch64-linux-gnu")
endforeach()

set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64-static -L /usr/aarch64-linux-gnu
  -E "LD_LIBRARY_PATH=${arm64_libraries}/usr/lib/aarch64-linux-gnu")
