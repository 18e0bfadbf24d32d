# Compiles the kernel of CUDA devices into the library, where CUDA's compiler is and works. Nothing else of CUDA is
# needed, to build or to run: the driver is opened at run time (accelerator/cuda/driver.hpp).
option(SENNIT_WITH_CUDA "the kernel of CUDA devices: nvcc" ON)
if(SENNIT_WITH_CUDA AND NOT SENNIT_SANITIZE) # no sanitizer looks into a device
  find_program(SENNIT_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
endif()
# PTX is for devices that are newer than this compiler, or between. Why -fmad=false: reduce/element.hpp. Registers that
# go to memory make loads wait for one another: the compiler says so.
set(kernel_flags -fatbin -O3 -std=c++20 -fmad=false -Xptxas --warn-on-spills
                 -gencode arch=compute_80,code=[sm_80,compute_80] -gencode arch=compute_90,code=sm_90)
if(SENNIT_WITH_CUDA AND SENNIT_NVCC AND NOT DEFINED SENNIT_NVCC_WORKS)
  # One that is too old, or too old for this machine's g++, is as good as none.
  set(probe ${CMAKE_CURRENT_BINARY_DIR}/nvcc_works.cu)
  file(WRITE ${probe} "#include <cstdint>\nextern \"C\" __global__ void probe(uint64_t* word) { *word = 1; }\n")
  execute_process(COMMAND ${SENNIT_NVCC} ${kernel_flags} -o ${probe}.fatbin ${probe}
                  RESULT_VARIABLE failed OUTPUT_QUIET ERROR_QUIET)
  if(failed)
    set(SENNIT_NVCC_WORKS FALSE CACHE INTERNAL "")
  else()
    set(SENNIT_NVCC_WORKS TRUE CACHE INTERNAL "")
  endif()
endif()
if(SENNIT_WITH_CUDA AND SENNIT_NVCC AND SENNIT_NVCC_WORKS AND NOT SENNIT_SANITIZE)
  set(kernel_file ${CMAKE_CURRENT_BINARY_DIR}/worker_kernel.fatbin)
  set(kernel_source ${CMAKE_CURRENT_LIST_DIR}/cuda/worker_kernel.cu)
  add_custom_command(
    OUTPUT ${kernel_file}
    COMMAND ${SENNIT_NVCC} ${kernel_flags} -I${CMAKE_SOURCE_DIR}/src -I${CMAKE_SOURCE_DIR}/include
            -MD -MF ${kernel_file}.d -o ${kernel_file} ${kernel_source}
    DEPENDS ${kernel_source}
    DEPFILE ${kernel_file}.d
    COMMENT "Compiling the kernel of CUDA devices"
    VERBATIM)
  # A source of the target, so that it is made before the file that takes it in.
  target_sources(sennit_runtime PRIVATE ${kernel_file})
  set_source_files_properties(
    ${CMAKE_CURRENT_LIST_DIR}/cuda/kernel_image.cpp
    PROPERTIES COMPILE_DEFINITIONS "SENNIT_HAVE_KERNEL;SENNIT_KERNEL_FILE=\"${kernel_file}\""
               OBJECT_DEPENDS ${kernel_file} SKIP_PRECOMPILE_HEADERS ON)
endif()
