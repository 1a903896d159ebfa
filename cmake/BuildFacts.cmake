# msprobe_build_facts: compile definitions for src/app/build_facts.cc. Read when CMake configures, which every wheel
# build does; in a tree that is only rebuilt the commit stays that of the last configuration.
set(commit "")
find_program(GIT git)
if(GIT AND EXISTS "${PROJECT_SOURCE_DIR}/.git")
  execute_process(
    COMMAND "${GIT}" describe --always --dirty --abbrev=12 --exclude "*"
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT commit)
  set(commit "unknown")
endif()
set(build_type "${CMAKE_BUILD_TYPE}")
if(MSPROBE_SANITIZE)
  string(REPLACE ";" " " sanitizers "${MSPROBE_SANITIZE}")
  string(APPEND build_type ", ${sanitizers}")
endif()
set(msprobe_build_facts
  "MSPROBE_COMMIT=\"${commit}\""
  "MSPROBE_COMPILER=\"${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}\""
  "MSPROBE_BUILD_TYPE=\"${build_type}\"")
