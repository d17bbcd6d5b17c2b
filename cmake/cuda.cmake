# The CUDA rooms: src/gpu, *.cu (by nvcc) and *_host.cpp (their host side, by the C++ compiler), and Hopper's attention in instances
# that are generated into the build folder. Without CUDA, files called no_cuda.cpp refuse in place of kernels.
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
endif()

# A source in the build folder that instantiates templates; its path is appended to the list called `files`. LINES are whole instances; FORWARD and
# BACKWARD (with each of WANTS) and WIDE (with each of WANTS_WIDE) are the shapes of start_forward and start_backward; DROPPING_FORWARD,
# DROPPING_BACKWARD (with each of WANTS_DROPPING) and DROPPING_WIDE those of the same with dropout.
# The lists themselves stand beside the kernels: src/ops/attention/sm80/instances.cmake and sm90/instances.cmake.
function(headroom_instances files name header namespace)
  cmake_parse_arguments(PARSE_ARGV 4 of "" ""
    "LINES;FORWARD;BACKWARD;WANTS;WIDE;WANTS_WIDE;DROPPING_FORWARD;DROPPING_BACKWARD;WANTS_DROPPING;DROPPING_WIDE")
  set(lines ${of_LINES})
  foreach(shapes_and_drops "FORWARD false" "DROPPING_FORWARD true")
    separate_arguments(shapes_and_drops)
    list(GET shapes_and_drops 0 shapes)
    list(GET shapes_and_drops 1 drops)
    foreach(shape ${of_${shapes}})
      list(APPEND lines "start_forward<${shape}, ${drops}>(const ForwardArgs&, cudaStream_t)")
    endforeach()
  endforeach()
  foreach(shapes_and_wants "BACKWARD WANTS false" "WIDE WANTS_WIDE false" "DROPPING_BACKWARD WANTS_DROPPING true" "DROPPING_WIDE WANTS_WIDE true")
    separate_arguments(shapes_and_wants)
    list(GET shapes_and_wants 0 shapes)
    list(GET shapes_and_wants 1 each_of)
    list(GET shapes_and_wants 2 drops)
    foreach(shape ${of_${shapes}})
      foreach(wants ${of_${each_of}})
        list(APPEND lines "start_backward<${shape}, ${wants}, ${drops}>(const BackwardArgs&, cudaStream_t)")
      endforeach()
    endforeach()
  endforeach()
  list(TRANSFORM lines PREPEND "template void ")
  list(TRANSFORM lines APPEND "\;\n")
  string(CONCAT body ${lines})
  set(file ${PROJECT_BINARY_DIR}/generated/${name}.cu)
  file(CONFIGURE OUTPUT ${file} CONTENT "#include \"${header}\"\nnamespace ${namespace} {\n${body}}\n" @ONLY)
  set(${files} ${${files}} ${file} PARENT_SCOPE)
endfunction()

# HOST are the sources of the host's side. They are objects of their own: only they see CUDA's headers, so everything else compiles as it does
# on a machine without CUDA, and a compiler cache serves both builds.
function(headroom_add_cuda target host)
  add_library(headroom_cuda_host OBJECT ${host})
  target_include_directories(headroom_cuda_host PRIVATE $<TARGET_PROPERTY:${target},INCLUDE_DIRECTORIES> ${CUDAToolkit_INCLUDE_DIRS})
  target_compile_definitions(headroom_cuda_host PRIVATE $<TARGET_PROPERTY:${target},COMPILE_DEFINITIONS>)
  target_compile_options(headroom_cuda_host PRIVATE -fno-math-errno -fno-trapping-math)
  target_link_libraries(headroom_cuda_host PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
  set_target_properties(headroom_cuda_host PROPERTIES UNITY_BUILD_MODE GROUP)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:headroom_cuda_host>)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.cu)
  list(FILTER sources EXCLUDE REGEX "/sm90/[a-z_]+\\.cu$|/product_update(_fp8)?_sm90\\.cu$")  # these are built for sm_90a below
  include(${PROJECT_SOURCE_DIR}/src/ops/attention/sm80/instances.cmake)
  # Sources that ask for no architecture: sm_90 gets the same code from sm_80's PTX (compared by cuobjdump -sass on 2026-11-27: 386 kernels, none
  # differs), so that one PTX is made for both. A source that reads __CUDA_ARCH__ is not among them (tests/house/layers_test.cpp).
  set(of_any_card ${sources})
  list(FILTER of_any_card INCLUDE REGEX
    "/(activation|adamw|bias|copy|cross_entropy|embedding|gradient_sum|head_norm|layernorm|rank_sum|rmsnorm|rope|stripes|swiglu)_cuda\\.cu$")
  if(HEADROOM_CUDA_ARCHITECTURES STREQUAL "80-virtual;90-real")
    list(REMOVE_ITEM sources ${of_any_card})
    add_library(headroom_any_card OBJECT ${of_any_card})
    set_target_properties(headroom_any_card PROPERTIES UNITY_BUILD OFF CUDA_ARCHITECTURES OFF POSITION_INDEPENDENT_CODE ON)
    target_include_directories(headroom_any_card PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_compile_options(headroom_any_card PRIVATE "--generate-code=arch=compute_80,code=[compute_80,sm_90]" --expt-relaxed-constexpr)
    target_compile_definitions(headroom_any_card PRIVATE FMT_USE_CONSTEXPR=1)
    target_link_libraries(headroom_any_card PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
    target_sources(${target} PRIVATE $<TARGET_OBJECTS:headroom_any_card>)
  endif()
  target_sources(${target} PRIVATE ${sources} ${headroom_block_instances})
  # Random numbers have the same bits everywhere where products and sums are not contracted.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/ops/fill/fill_cuda.cu ${PROJECT_SOURCE_DIR}/src/gpu/fill.cu
    PROPERTIES COMPILE_OPTIONS --fmad=false)
  target_link_libraries(${target} INTERFACE $<LINK_ONLY:CUDA::cudart_static>)  # cuBLASLt is opened at run time: src/gpu/cublaslt.h
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)
  target_compile_definitions(${target} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:FMT_USE_CONSTEXPR=1>)  # fmt 9 doubts nvcc
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/studies/precision/gpu.cu PROPERTIES COMPILE_OPTIONS --fmad=false)

  # A wgmma that ptxas serialises runs at half speed, so it fails the build.
  include(${PROJECT_SOURCE_DIR}/src/ops/attention/sm90/instances.cmake)
  set(instances ${headroom_sm90_instances})
  set(product_updates ${PROJECT_SOURCE_DIR}/src/ops/product_update/product_update_sm90.cu
    ${PROJECT_SOURCE_DIR}/src/ops/product_update/product_update_fp8_sm90.cu)
  set_source_files_properties(${product_updates} PROPERTIES COMPILE_DEFINITIONS FMT_USE_CONSTEXPR=1)
  list(APPEND instances ${PROJECT_SOURCE_DIR}/src/ops/attention/sm90/bwd_around.cu ${product_updates})
  add_library(headroom_sm90 OBJECT ${instances})
  # UNITY_BUILD: what else is in a file changes a kernel's code, and CMake unites CUDA sources from 3.31 on.
  set_target_properties(headroom_sm90 PROPERTIES UNITY_BUILD OFF CUDA_ARCHITECTURES 90a-real POSITION_INDEPENDENT_CODE ON
    RULE_LAUNCH_COMPILE "sh ${PROJECT_SOURCE_DIR}/cmake/refuse_serialised")
  target_include_directories(headroom_sm90 PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_compile_options(headroom_sm90 PRIVATE --expt-relaxed-constexpr)
  target_sources(${target} PRIVATE $<TARGET_OBJECTS:headroom_sm90>)
endfunction()

# What `headroom profile -- …` puts into other programs: the standard library is inside, nothing but its two doors is visible.
function(headroom_add_inject)
  set(folder ${PROJECT_SOURCE_DIR}/src/instruments/profile)
  add_library(headroom_inject SHARED ${folder}/inject/inject.cpp ${folder}/cupti_host.cpp)
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
  target_link_libraries(headroom_variants PRIVATE headroom_core)
endfunction()
