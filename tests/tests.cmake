# tests.cmake: tests and benchmarks; CMakeLists.txt includes it. tests/NAME_test.cpp is one program each, linked with the objects and GoogleTest.
if(SENNIT_TESTS)
  enable_testing()
  find_package(GTest REQUIRED)
  add_custom_target(test_programs)
  file(GLOB test_sources CONFIGURE_DEPENDS tests/*_test.cpp)
  if(NOT SENNIT_TRAINER)
    list(FILTER test_sources EXCLUDE REGEX "/trainer_[^/]*_test\\.cpp$")
  endif()
  if(SENNIT_SANITIZE OR NOT IBNET_FOUND) # it preloads ibsim's library, which must come before the sanitizer's
    list(FILTER test_sources EXCLUDE REGEX "/ibnet_live_test\\.cpp$")
  endif()
  if(SENNIT_SANITIZE) # it judges the memory of a process among 256, and a sanitizer multiplies that
    list(FILTER test_sources EXCLUDE REGEX "/scale_test\\.cpp$")
  endif()
  if(SENNIT_SANITIZE MATCHES thread) # these have one thread, or those that others of these try as well
    list(FILTER test_sources EXCLUDE REGEX "/(bench_check|bound|choices|collectives|concurrent|cores|count|emulate_simulated|fabric|goal|ibnet|inside|\
job_command|options|plan|planner|reduce|schedule|shallow_json|simulate|simulate_groups|simulate_symmetry|sources|tier_tree|tiered|topo|topology|\
calibration|trainer_(command|config|curve|export|failure|kill|limits|model|ops|run|safetensors|settings|text)|training|verify|verify_broken)_test\\.cpp$")
  endif()
  if(NOT SIMGRID_FOUND) # which is not looked for under a sanitizer: the judge replays, and nothing of the library runs there
    list(FILTER test_sources EXCLUDE REGEX "/simgrid_test\\.cpp$")
  endif()
  foreach(source ${test_sources})
    get_filename_component(name ${source} NAME_WE)
    add_executable(${name} ${source})
    target_link_libraries(${name} PRIVATE sennit_objects GTest::gtest_main)
    if(SENNIT_SANITIZE)
      target_compile_definitions(${name} PRIVATE SENNIT_SANITIZED)
      if(SENNIT_SANITIZE MATCHES thread) # at -O0 they run three times as long, which is more than compiling takes
        target_compile_options(${name} PRIVATE -O1)
      endif()
    else()
      target_compile_options(${name} PRIVATE -O1) # compiled in half the time; the library keeps -O3
    endif()
    target_compile_definitions(${name} PRIVATE SENNIT_SOURCE_DIR="${CMAKE_SOURCE_DIR}" SENNIT_BINARY_DIR="${CMAKE_BINARY_DIR}")
    if(name MATCHES "^trainer_")
      target_link_libraries(${name} PRIVATE trainer_objects)
    endif()
    add_dependencies(test_programs ${name})
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT 600)
  endforeach()
  # Random programs: the test runs some, the command as many as one likes.
  file(GLOB random_sources CONFIGURE_DEPENDS tests/random/*.cpp)
  list(FILTER random_sources EXCLUDE REGEX "/main\\.cpp$")
  add_library(random_parts OBJECT ${random_sources})
  target_include_directories(random_parts PUBLIC tests)
  target_link_libraries(random_parts PUBLIC sennit_objects)
  if(SENNIT_SANITIZE)
    target_compile_definitions(random_parts PUBLIC SENNIT_SANITIZED)
  endif()
  if(NOT UCX_USED)
    target_compile_definitions(random_parts PUBLIC SENNIT_NO_UCX)
  endif()
  target_compile_options(random_parts PRIVATE -O1)
  target_link_libraries(random_programs_test PRIVATE random_parts)
  add_executable(random_programs tests/random/main.cpp)
  target_link_libraries(random_programs PRIVATE random_parts sennit_objects)
  add_dependencies(test_programs random_programs)

  # They build namespaces, run launchers, or judge what happens within seconds of a kill: nothing runs beside them.
  foreach(name bench_test strangers_test control_failure_test control_guard_test emulate_test failure_test fork_test launch_test limits_test
               probe_emulated_test scale_test start_again_test topo_test trainer_failure_test)
    if(TARGET ${name})
      set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
    endif()
  endforeach()
  foreach(name bench_test bench_launch_test plan_test job_command_test simulate_groups_test goal_test emulate_test emulate_simulated_test probe_emulated_test topo_test tuning_test trainer_command_test trainer_export_test trainer_failure_test trainer_run_test)  # these run the command
    if(TARGET sennit_command AND TARGET ${name})
      add_dependencies(${name} sennit_command)
    endif()
  endforeach()
  if(TARGET inside_test AND VERBS_USED)
    target_compile_definitions(inside_test PRIVATE SENNIT_HAVE_VERBS)
  endif()
  if(TARGET bench_check_test)
    target_sources(bench_check_test PRIVATE src/command_bench_check.cpp)
  endif()
  if(TARGET topo_test) # all but the command line itself
    file(GLOB topo_sources CONFIGURE_DEPENDS src/command_topo_*.cpp)
    target_sources(topo_test PRIVATE ${topo_sources})
  endif()

  # The simulator beside SimGrid: a subset in the test, all of it by simgrid_judge.
  if(SIMGRID_FOUND)
    add_library(simgrid_replay OBJECT perf/simgrid_platform.cpp perf/simgrid_ranks.cpp perf/simgrid_replay.cpp perf/simgrid_cases.cpp)
    target_include_directories(simgrid_replay PUBLIC perf)
    target_link_libraries(simgrid_replay PUBLIC sennit_objects PkgConfig::SIMGRID)
    add_executable(simgrid_judge perf/simgrid_judge.cpp)
    target_link_libraries(simgrid_judge PRIVATE simgrid_replay sennit_objects)
    target_link_libraries(simgrid_test PRIVATE simgrid_replay)
  elseif(NOT SENNIT_SANITIZE)
    add_test(NAME simgrid_test COMMAND ${CMAKE_COMMAND} -E echo "SKIPPED: the simulator's judge needs SimGrid")
    set_tests_properties(simgrid_test PROPERTIES SKIP_REGULAR_EXPRESSION "SKIPPED")
  endif()

  if(NOT IBNET_FOUND)
    add_test(NAME ibnet_live_test COMMAND ${CMAKE_COMMAND} -E echo "SKIPPED: the live subnet needs libibnetdisc")
    set_tests_properties(ibnet_live_test PROPERTIES SKIP_REGULAR_EXPRESSION "SKIPPED")
  endif()
  if(UCX_FOUND)
    foreach(name transport_test transport_failure_test)
      add_test(NAME ${name}_ucx_tcp COMMAND ${name} --gtest_filter=*ucx*)
      set_tests_properties(${name}_ucx_tcp PROPERTIES TIMEOUT 600 ENVIRONMENT "UCX_TLS=tcp")
    endforeach()
  endif()
  # perf/components/NAME_benchmark.cpp is one program each, linked with the objects and Google Benchmark.
  find_package(benchmark)
  file(GLOB benchmark_sources CONFIGURE_DEPENDS perf/components/*_benchmark.cpp)
  if(NOT UCX_FOUND)
    list(FILTER benchmark_sources EXCLUDE REGEX "/ucx_benchmark\\.cpp$")
  endif()
  if(NOT SENNIT_TRAINER)
    list(FILTER benchmark_sources EXCLUDE REGEX "/trainer_[^/]*_benchmark\\.cpp$")
  endif()
  foreach(source ${benchmark_sources})
    if(benchmark_FOUND)
      get_filename_component(name ${source} NAME_WE)
      add_executable(${name} ${source})
      target_link_libraries(${name} PRIVATE sennit_objects benchmark::benchmark_main)
      if(name MATCHES "^trainer_")
        target_link_libraries(${name} PRIVATE trainer_objects)
      endif()
    endif()
  endforeach()
endif()

if(SENNIT_TESTS AND SENNIT_SANITIZE MATCHES address)
  add_subdirectory(tests/fuzz)
endif()

# Under a sanitizer every report but a fuzzer's goes into the folder reports, also that of a child process or a command whose end the
# test does not judge; a last test fails with all of them.
if(SENNIT_TESTS AND SENNIT_SANITIZE)
  set(reports ${CMAKE_BINARY_DIR}/reports)
  set(sanitizer_options "log_path=${reports}/report:log_exe_name=1:print_suppressions=0")
  get_property(all_tests DIRECTORY PROPERTY TESTS)
  set_property(TEST ${all_tests} APPEND PROPERTY FIXTURES_REQUIRED reports)
  set_property(TEST ${all_tests} APPEND PROPERTY ENVIRONMENT
    "ASAN_OPTIONS=${sanitizer_options}:detect_stack_use_after_return=1:strict_string_checks=1"
    "LSAN_OPTIONS=${sanitizer_options}:suppressions=${CMAKE_SOURCE_DIR}/tests/leaks.supp"
    "UBSAN_OPTIONS=${sanitizer_options}:print_stacktrace=1"
    "TSAN_OPTIONS=${sanitizer_options}:suppressions=${CMAKE_SOURCE_DIR}/tests/races.supp"
    UCX_MEM_EVENTS=n) # its hooks and the sanitizer's would each call the other
  # PMIx is built without frame pointers: only the slow unwinder sees that a leak is its own.
  set_property(TEST launch_test APPEND PROPERTY ENVIRONMENT
    "ASAN_OPTIONS=${sanitizer_options}:detect_stack_use_after_return=1:fast_unwind_on_malloc=0")
  add_test(NAME clear_reports COMMAND sh -c "rm -rf ${reports} && mkdir ${reports}")
  set_tests_properties(clear_reports PROPERTIES FIXTURES_SETUP reports)
  add_test(NAME no_reports COMMAND sh -c "! cat ${reports}/* 2>/dev/null")
  set_tests_properties(no_reports PROPERTIES FIXTURES_CLEANUP reports)
endif()

if(SENNIT_TESTS)
  add_test(NAME run_paths COMMAND ${CMAKE_SOURCE_DIR}/tests/run_paths.sh ${CMAKE_RUNTIME_OUTPUT_DIRECTORY} ${CMAKE_LIBRARY_OUTPUT_DIRECTORY})
  # Finds most under a sanitizer, where few functions are so small that every call of them is inlined.
  set(objects $<TARGET_OBJECTS:sennit_objects>)
  if(TARGET trainer_objects)
    list(APPEND objects $<TARGET_OBJECTS:trainer_objects>)
  endif()
  add_test(NAME one_definition COMMAND ${CMAKE_SOURCE_DIR}/tests/one_definition.sh ${objects} COMMAND_EXPAND_LISTS)
endif()
if(SENNIT_TESTS AND NOT SENNIT_SANITIZE)
  add_test(NAME exported_symbols COMMAND sh -c "! nm -D --defined-only $<TARGET_FILE:sennit> | grep -v ' sennit_'")
endif()
