# libheadroom_cuda.so: *.cu (by nvcc), src/gpu/cuda and *_cuda.cpp (which call CUDA, by the C++ compiler), and attention in instances that are
# generated into the build folder. The rest of the sources is the program's, and says no word of CUDA's.
set(cuda_found OFF)
if(NOT HEADROOM_CUDA STREQUAL "OFF")
  include(CheckLanguage)
  check_language(CUDA)
  if(CMAKE_CUDA_COMPILER)
    set(cuda_found ON)
  elseif(HEADROOM_CUDA STREQUAL "ON")
    message(FATAL_ERROR "HEADROOM_CUDA is ON, but no nvcc was found; put it on the PATH or set CMAKE_CUDA_COMPILER")
  endif()
endif()
set(HEADROOM_HAS_CUDA ${cuda_found})
set(HEADROOM_CUDA_ARCHITECTURES "80-virtual;90-real" CACHE STRING "Cards that kernels are built for, as CMAKE_CUDA_ARCHITECTURES; Hopper's own come on top")

if(HEADROOM_HAS_CUDA)
  set(CMAKE_CUDA_ARCHITECTURES ${HEADROOM_CUDA_ARCHITECTURES})
  enable_language(CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  foreach(kind STANDARD EXTENSION)  # CMake 3.25 does not know how to ask nvcc 13 for it
    if(NOT CMAKE_CUDA20_${kind}_COMPILE_OPTION)
      set(CMAKE_CUDA20_${kind}_COMPILE_OPTION "-std=c++20")
    endif()
  endforeach()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Static)
  find_package(CUDAToolkit REQUIRED)
elseif(NOT HEADROOM_ALIKE)  # whose commands must stay as they are elsewhere
  # CUDA's headers may lie where the compiler looks by itself. Then a source that must do without them would fail on other machines alone.
  set(no_cuda_headers ${PROJECT_BINARY_DIR}/no_cuda_headers)
  foreach(header cuda.h cuda_bf16.h cuda_fp16.h cuda_fp8.h cuda_runtime.h cuda_runtime_api.h cublasLt.h cupti.h nccl.h nvrtc.h)
    file(WRITE ${no_cuda_headers}/${header} "#error this build has no CUDA, and this source includes ${header}\n")
  endforeach()
  include_directories(BEFORE SYSTEM ${no_cuda_headers})  # after src/gpu/words, where a target has that
endif()

# A source in the build folder that instantiates templates; its path is appended to the list called `files`, and what the library offers of it
# (src/gpu/beside.h) to HEADROOM_OFFERS. LINES are whole instances; FORWARD and
# BACKWARD (with each of WANTS) and WIDE (with each of WANTS_WIDE) are the shapes of start_forward and start_backward; FORWARD_BY_PLACE,
# BACKWARD_BY_PLACE (with each of WANTS_BY_PLACE) and WIDE_BY_PLACE those of the same with dropout, and with ALiBi.
# The lists themselves stand beside the kernels: src/ops/attention/sm80/instances.cmake and sm90/instances.cmake.
function(headroom_instances files name header namespace)
  cmake_parse_arguments(PARSE_ARGV 4 of "" ""
    "LINES;FORWARD;BACKWARD;WANTS;WIDE;WANTS_WIDE;FORWARD_BY_PLACE;BACKWARD_BY_PLACE;WANTS_BY_PLACE;WIDE_BY_PLACE")
  set(lines ${of_LINES})
  foreach(shapes_and_by_place "FORWARD nothing" "FORWARD_BY_PLACE dropout" "FORWARD_BY_PLACE alibi")
    separate_arguments(shapes_and_by_place)
    list(GET shapes_and_by_place 0 shapes)
    list(GET shapes_and_by_place 1 by_place)
    foreach(shape ${of_${shapes}})
      list(APPEND lines "start_forward<${shape}, ByPlace::${by_place}>(const ForwardArgs&, cudaStream_t)")
    endforeach()
  endforeach()
  foreach(shapes_and_wants "BACKWARD WANTS nothing" "WIDE WANTS_WIDE nothing" "BACKWARD_BY_PLACE WANTS_BY_PLACE dropout"
      "WIDE_BY_PLACE WANTS_WIDE dropout" "BACKWARD_BY_PLACE WANTS_BY_PLACE alibi" "WIDE_BY_PLACE WANTS_WIDE alibi")
    separate_arguments(shapes_and_wants)
    list(GET shapes_and_wants 0 shapes)
    list(GET shapes_and_wants 1 each_of)
    list(GET shapes_and_wants 2 by_place)
    foreach(shape ${of_${shapes}})
      foreach(wants ${of_${each_of}})
        list(APPEND lines "start_backward<${shape}, ${wants}, ByPlace::${by_place}>(const BackwardArgs&, cudaStream_t)")
      endforeach()
    endforeach()
  endforeach()
  set(offers ${lines})
  list(TRANSFORM offers REPLACE "\\(.*" "")
  list(TRANSFORM offers PREPEND "    beside::offer<")
  list(TRANSFORM offers APPEND ">(),\n")
  string(CONCAT offers ${offers})
  set(HEADROOM_OFFERS "${HEADROOM_OFFERS}namespace ${namespace} {\nconst beside::Offers of_${name}{\n${offers}};\n}\n" PARENT_SCOPE)
  list(TRANSFORM lines PREPEND "template void ")
  list(TRANSFORM lines APPEND "\;\n")
  string(CONCAT body ${lines})
  set(file ${PROJECT_BINARY_DIR}/generated/${name}.cu)
  file(CONFIGURE OUTPUT ${file} CONTENT "#include \"${header}\"\nnamespace ${namespace} {\n${body}}\n" @ONLY)
  set(${files} ${${files}} ${file} PARENT_SCOPE)
endfunction()

# libheadroom_cuda.so: the kernels, and what calls CUDA's runtime, driver and tools. The program opens it at run time (src/gpu/beside.h), so that
# the program is one build for machines with a GPU and without. The standard library and fmt are inside (not libgcc_s: the static one asks for a newer
# glibc than a wheel may), and nothing but its one symbol is visible: the same file serves the program, libheadroom.so and the wheel.
function(headroom_add_kernels)
  file(GLOB_RECURSE host CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*_cuda.cpp ${PROJECT_SOURCE_DIR}/src/*/offers.cpp ${PROJECT_SOURCE_DIR}/src/gpu/cuda/*.cpp)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.cu)
  list(FILTER sources EXCLUDE REGEX "/sm90/[a-z_]+\\.cu$|/(gated_product|product_update(_fp8)?)_sm90\\.cu$")  # these are built for sm_90a below
  include(${PROJECT_SOURCE_DIR}/src/ops/attention/sm80/instances.cmake)
  # Sources that ask for no architecture: sm_90 gets the same code from sm_80's PTX (compared by cuobjdump -sass on 2026-11-27: 386 kernels, and on
  # 2026-11-29 the 222 of flash_sm80 and flash_simt, and 78 of other sources; none differs), so that one PTX is made for both. A source that reads
  # __CUDA_ARCH__ is not among them (tests/house/layers_test.cpp).
  set(of_any_card "")
  foreach(source gpu/copy gpu/fill ops/activation/activation_cuda ops/adamw/adamw_cuda ops/attention/no_keys ops/attention/plain_cuda/plain_cuda
      ops/attention/sampled/sampled_rows ops/bias/bias_cuda ops/copy/copy_cuda ops/cross_entropy/cross_entropy_cuda ops/embedding/embedding_cuda
      ops/fill/fill_cuda ops/gradient_sum/gradient_sum_cuda ops/head_norm/head_norm_cuda ops/layernorm/layernorm_cuda ops/rank_sum/rank_sum_cuda
      ops/rmsnorm/rmsnorm_cuda ops/rope/rope_cuda ops/stripes/stripes_cuda ops/swiglu/swiglu_cuda studies/precision/gpu)
    list(APPEND of_any_card ${PROJECT_SOURCE_DIR}/src/${source}.cu)
  endforeach()
  set(parts headroom_each_card headroom_sm90)
  if(HEADROOM_CUDA_ARCHITECTURES STREQUAL "80-virtual;90-real")
    list(REMOVE_ITEM sources ${of_any_card})
    list(APPEND parts headroom_any_card)
    add_library(headroom_any_card OBJECT ${of_any_card} ${headroom_instances_of_any_card})
    target_compile_definitions(headroom_any_card PRIVATE HEADROOM_ANY_CARD)
    set_target_properties(headroom_any_card PROPERTIES CUDA_ARCHITECTURES OFF)
    target_compile_options(headroom_any_card PRIVATE "--generate-code=arch=compute_80,code=[compute_80,sm_90]")
  else()
    list(APPEND sources ${headroom_instances_of_any_card})
  endif()
  add_library(headroom_each_card OBJECT ${sources} ${headroom_block_instances})
  # Random numbers have the same bits everywhere where products and sums are not contracted.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/ops/fill/fill_cuda.cu ${PROJECT_SOURCE_DIR}/src/gpu/fill.cu
    ${PROJECT_SOURCE_DIR}/src/studies/precision/gpu.cu PROPERTIES COMPILE_OPTIONS --fmad=false)

  # A wgmma that ptxas serialises runs at half speed, so it fails the build.
  include(${PROJECT_SOURCE_DIR}/src/ops/attention/sm90/instances.cmake)
  add_library(headroom_sm90 OBJECT ${headroom_sm90_instances} ${PROJECT_SOURCE_DIR}/src/ops/attention/sm90/bwd_around.cu
    ${PROJECT_SOURCE_DIR}/src/ops/attention/sm90/bwd_list_kept.cu
    ${PROJECT_SOURCE_DIR}/src/ops/gated_product/gated_product_sm90.cu
    ${PROJECT_SOURCE_DIR}/src/ops/product_update/product_update_sm90.cu ${PROJECT_SOURCE_DIR}/src/ops/product_update/product_update_fp8_sm90.cu)
  set_target_properties(headroom_sm90 PROPERTIES CUDA_ARCHITECTURES 90a-real RULE_LAUNCH_COMPILE "sh ${PROJECT_SOURCE_DIR}/cmake/refuse_serialised")

  set(file ${PROJECT_BINARY_DIR}/generated/offers_of_instances.cpp)
  file(CONFIGURE OUTPUT ${file} @ONLY CONTENT [[#include <cuda_fp8.h>

#include "gpu/beside.h"
#include "ops/attention/sm80/blocks.h"
#include "ops/attention/sm80/blocks_tiles.h"
#include "ops/attention/sm90/bwd.h"
#include "ops/attention/sm90/fwd_fp8.h"
#include "ops/attention/sm90/tiles.h"
#include "ops/attention/sm90/tiles_fp8.h"
@HEADROOM_OFFERS@]])
  # What it needs of the rooms below, as its own copy.
  set(own "")
  foreach(source base/error base/file base/interrupt base/printable base/text base/threads memory/block gpu/edge gpu/place gpu/plan_file
      ops/attention/alibi ops/attention/documents/documents ops/attention/dropout ops/attention/mask ops/attention/problem)
    list(APPEND own ${PROJECT_SOURCE_DIR}/src/${source}.cpp)
  endforeach()
  find_library(STATIC_FMT NAMES libfmt.a)
  if(NOT STATIC_FMT)
    list(APPEND own ${PROJECT_SOURCE_DIR}/cmake/portable/fmt.cpp)
  endif()
  add_library(headroom_cuda MODULE ${host} ${own} ${file} $<TARGET_OBJECTS:headroom_this_build>)
  foreach(part ${parts})
    # UNITY_BUILD: what else is in a file changes a kernel's code, and CMake unites CUDA sources from 3.31 on.
    set_target_properties(${part} PROPERTIES UNITY_BUILD OFF POSITION_INDEPENDENT_CODE ON)
    target_include_directories(${part} PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_compile_options(${part} PRIVATE --expt-relaxed-constexpr)
    target_compile_definitions(${part} PRIVATE FMT_USE_CONSTEXPR=1)  # fmt 9 doubts nvcc
    target_link_libraries(${part} PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
    target_sources(headroom_cuda PRIVATE $<TARGET_OBJECTS:${part}>)
  endforeach()
  set(exports ${PROJECT_SOURCE_DIR}/cmake/cuda.map)
  set_target_properties(headroom_cuda PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR} LINK_DEPENDS ${exports} UNITY_BUILD OFF CXX_CLANG_TIDY "")
  target_include_directories(headroom_cuda PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_compile_options(headroom_cuda PRIVATE $<$<CONFIG:Release>:-O2> -ffunction-sections -fdata-sections)  # of its copies, what is called
  target_include_directories(headroom_cuda PRIVATE ${PROJECT_SOURCE_DIR}/src $<TARGET_PROPERTY:fmt::fmt,INTERFACE_INCLUDE_DIRECTORIES>)
  target_compile_definitions(headroom_cuda PRIVATE HEADROOM_VERSION="${PROJECT_VERSION}" HEADROOM_LIBRARY_FROM_BIN="${library_from_bin}")
  target_link_libraries(headroom_cuda PRIVATE $<$<BOOL:${STATIC_FMT}>:${STATIC_FMT}> Threads::Threads ${CMAKE_DL_LIBS}
    CUDA::cudart_static)  # cuBLASLt is opened at run time: src/gpu/cublaslt.h
  target_link_options(headroom_cuda PRIVATE -static-libstdc++ LINKER:--exclude-libs,ALL LINKER:--gc-sections LINKER:--no-undefined
    LINKER:--version-script=${exports})
  set(HEADROOM_KERNELS headroom_cuda ${parts} PARENT_SCOPE)
  install(TARGETS headroom_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

# What `headroom profile -- …` puts into other programs: the standard library is inside, nothing but its two doors is visible.
function(headroom_add_inject)
  set(folder ${PROJECT_SOURCE_DIR}/src/instruments/profile)
  add_library(headroom_inject SHARED ${folder}/inject/inject.cpp ${folder}/cupti_cuda.cpp)
  set(exports ${PROJECT_SOURCE_DIR}/cmake/inject.map)
  set_target_properties(headroom_inject PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR} LINK_DEPENDS ${exports})
  target_include_directories(headroom_inject PRIVATE ${PROJECT_SOURCE_DIR}/src ${CUDAToolkit_INCLUDE_DIRS})
  target_link_libraries(headroom_inject PRIVATE ${CMAKE_DL_LIBS})
  target_link_options(headroom_inject PRIVATE -static-libstdc++ LINKER:--gc-sections LINKER:--version-script=${exports})
  include(GNUInstallDirs)
  install(TARGETS headroom_inject LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endfunction()

# For the scripts of bench/peers.
function(headroom_add_gpu_peers)
  add_library(headroom_variants SHARED EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/peers/variants.cpp)
  add_dependencies(headroom_variants headroom_cuda)
  target_link_libraries(headroom_variants PRIVATE headroom_core)
endfunction()
