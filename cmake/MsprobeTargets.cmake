# msprobe_library(NAME SOURCES ... [LINK ...] [PRIVATE_LINK ...] [TESTS ...] [TEST_LINK ...])
#
# One static library per folder of src/, called msprobe_<folder>, and one test program per folder. Explicit
# source lists, no globbing. LINK names folders (or imported targets) whose headers our headers include.

# Debian's packages are what the C++ core is built from; versions in docs and HACKING.md.
find_package(Threads REQUIRED)

set(msprobe_warnings -Wall -Wextra -Wconversion -Wsign-conversion -Wshadow)
if(MSPROBE_WERROR)
  # g++ 12 takes some std::string concatenations at -O3 for overlapping copies (GCC bug 105329, fixed in 13).
  list(APPEND msprobe_warnings -Werror -Wno-error=restrict)
endif()

if(MSPROBE_WERROR AND MSPROBE_SANITIZE)
  # Instrumented code confuses this warning of g++ (its manual says so); the release build has it as an error.
  list(APPEND msprobe_warnings -Wno-error=maybe-uninitialized)
endif()

foreach(sanitizer IN LISTS MSPROBE_SANITIZE)
  add_compile_options(-fsanitize=${sanitizer} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${sanitizer})
endforeach()
if("undefined" IN_LIST MSPROBE_SANITIZE)
  add_compile_options(-fno-sanitize-recover=undefined)
endif()

if(MSPROBE_FUZZ)
  add_compile_options(-fsanitize=fuzzer-no-link -fsanitize-ignorelist=${PROJECT_SOURCE_DIR}/fuzz/ignorelist.txt)
endif()

# Highway 1.0 has no SSE2 target, so Westmere (2010) is the floor on x86. Its NEON target is built with +crypto; g++
# makes implicit constructors of structs of vectors with the options of the command line, which have to be the same.
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  add_compile_options(-march=x86-64-v2 -maes -mpclmul)
elseif(CMAKE_SYSTEM_PROCESSOR STREQUAL "aarch64")
  add_compile_options(-march=armv8-a+crypto)
endif()

if(MSPROBE_TESTS)
  enable_testing()
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()

function(msprobe_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK;PRIVATE_LINK;TESTS;TEST_LINK" ${ARGN})
  set(target msprobe_${name})
  add_library(${target} STATIC ${ARG_SOURCES})
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(${target} PRIVATE ${msprobe_warnings})
  target_compile_definitions(${target} PUBLIC FMT_HEADER_ONLY=1)
  target_link_libraries(${target} PUBLIC ${ARG_LINK} PRIVATE ${ARG_PRIVATE_LINK} Threads::Threads)
  if(MSPROBE_TESTS AND ARG_TESTS)
    add_executable(${name}_test ${ARG_TESTS})
    target_compile_options(${name}_test PRIVATE ${msprobe_warnings})
    target_compile_definitions(${name}_test PRIVATE
      MSPROBE_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data")
    target_link_libraries(${name}_test PRIVATE ${target} ${ARG_TEST_LINK} GTest::gtest GTest::gmock GTest::gtest_main)
    gtest_discover_tests(${name}_test TEST_PREFIX "${name}." DISCOVERY_TIMEOUT 60)
  endif()
endfunction()
