# compile_time.cmake: what makes compiling faster; CMakeLists.txt includes it after all targets.

# The sanitizers' builds are for finding faults, and are built as fast as may be: only the library is optimised.
if(SENNIT_SANITIZE)
  target_compile_options(sennit_objects PRIVATE -O1)
  if(SENNIT_TRAINER)
    target_compile_options(trainer_objects PRIVATE -O1)
  endif()
elseif(TARGET sennit_command)
  target_compile_options(sennit_command PRIVATE -O1) # what works is in the libraries; this compiles a third faster
endif()

# Large headers are read once a target, but where a compiler cache is: a file that includes too little is noticed there.
if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(large_headers <algorithm> <functional> <map> <memory> <optional> <string> <vector> <fmt/format.h>)
  set(json <nlohmann/json.hpp>)
  set(command_line <CLI/CLI.hpp>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU) # it compiles all of these into every file
    set(json "")
    set(command_line "")
  endif()
  # Each for an instruction set of its own.
  file(GLOB kernels src/reduce_avx*.cpp trainer/cpu_kernels_*.cpp trainer/cpu_amx_*.cpp)
  set_source_files_properties(${kernels} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
  # Most of what the command's files compile to is CLI11's and JSON's, the same in each: one file for all of a namespace.
  if(TARGET sennit_command)
    foreach(source ${command_sources})
      get_filename_component(name ${source} NAME_WE)
      string(REGEX REPLACE "^(command_[a-z]+).*" "\\1" group ${name})
      string(REGEX REPLACE "_(export|simulate)$" "_plan" group ${group})
      string(REGEX REPLACE "_(main|tune)$" "_bench" group ${group})
      set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
    endforeach()
    set_source_files_properties(${trainer_commands} PROPERTIES UNITY_GROUP command_trainer)
    set_target_properties(sennit_command PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    if(TARGET topo_test)
      set_target_properties(topo_test PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    endif()
  endif()
  target_precompile_headers(sennit_objects PRIVATE ${large_headers})
  if(SENNIT_TRAINER)
    target_precompile_headers(trainer_objects PRIVATE ${large_headers} ${json})
  endif()
  if(TARGET sennit_command)
    target_precompile_headers(sennit_command PRIVATE ${large_headers} ${command_line} ${json})
  endif()
  if(SENNIT_TESTS) # all tests have the same options: one for all
    list(FILTER test_sources EXCLUDE REGEX "/(inside|simgrid)_test\\.cpp$") # but these
    list(GET test_sources 0 first_test)
    get_filename_component(first_test ${first_test} NAME_WE)
    target_precompile_headers(${first_test} PRIVATE ${large_headers} <thread> <gtest/gtest.h> ${json})
    foreach(source ${test_sources})
      get_filename_component(name ${source} NAME_WE)
      if(NOT name STREQUAL first_test)
        target_precompile_headers(${name} REUSE_FROM ${first_test})
      endif()
    endforeach()
  endif()
endif()
