# Which kernels of flash_sm90 are compiled, with the shapes of tiles.h: a file per shape and type (backward: and order of sums, which would change each
# other's code).
set(forward_shapes Forward64 Forward64Short Forward80 Forward80Short Forward96 Forward96Short Forward128 Forward256)
set(forward_shapes_dealt_otherwise Forward64 Forward128 Forward256)  # also in parts and to clusters
set(forward_reaches all before run)
set(backward_shapes_in_order Backward64 Backward80 Backward96 Backward128)
set(backward_shapes_in_any_order Backward64 Backward128)

foreach(type __nv_bfloat16 __half)
  foreach(shape ${forward_shapes})
    set(tiles "${shape}<${type}>")
    if(shape IN_LIST forward_shapes_dealt_otherwise)
      list(APPEND tiles "EvenParts<${shape}<${type}>>" "Cluster<${shape}<${type}>>")
    endif()
    set(lines "")
    foreach(reach ${forward_reaches})
      foreach(one ${tiles})
        list(APPEND lines "start_forward<${one}, Reach::${reach}>(const ForwardArgs&, int, cudaStream_t)")
      endforeach()
    endforeach()
    headroom_instances(headroom_sm90_instances flash_sm90_fwd_${shape}_${type} ops/attention/sm90/fwd.cuh headroom::attention::sm90 LINES ${lines})
  endforeach()

  set(backward headroom::attention::sm90::backward)
  foreach(shape ${backward_shapes_in_order})
    headroom_instances(headroom_sm90_instances flash_sm90_bwd_${shape}_${type}_ordered_true ops/attention/sm90/bwd.cuh ${backward}
      LINES "start_main<${shape}<${type}>, true>(const Args&, int, cudaStream_t)")
  endforeach()
  foreach(shape ${backward_shapes_in_any_order})
    headroom_instances(headroom_sm90_instances flash_sm90_bwd_${shape}_${type}_ordered_false ops/attention/sm90/bwd.cuh ${backward}
      LINES "start_main<${shape}<${type}>, false>(const Args&, int, cudaStream_t)")
  endforeach()
  foreach(part dkdv dq)
    headroom_instances(headroom_sm90_instances flash_sm90_bwd_${part}_${type} ops/attention/sm90/bwd_wide_${part}.cuh ${backward}
      LINES "start_${part}<Backward256<${type}>>(const WideArgs&, int, cudaStream_t)")
  endforeach()
endforeach()
