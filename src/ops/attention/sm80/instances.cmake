# Which kernels of flash_simt and flash_sm80 are compiled, with the shapes of blocks_tiles.h: a file per type. Past head dim 128, dK and dV are two
# kernels, but for flash_sm80_fp32; fp32 storage up to there also has all gradients in one; "Tight" shapes are for cards with little shared memory.
# Dropout and ALiBi, which depend on a score's place, have kernels of their own, in one shape for all cards and for dims up to 64, 128 and 256.
# headroom_instances_of_any_card are compiled once for all cards (cmake/cuda.cmake). Each card has its own of the kernels that read the architecture
# (add_four, in all gradients of fp32 together), and of those whose code for sm_90 is another one (forward of 16 bits at head dim 32).
set(gradients_together "Wants::dq" "Wants::dk_dv")
set(gradients_apart "Wants::dq" "Wants::dk" "Wants::dv")

headroom_instances(headroom_instances_of_any_card flash_simt_fp32 ops/attention/sm80/simt.cuh headroom::attention::blocks::simt
  FORWARD SimtForward<32> SimtForward<64> SimtForward<128> SimtForward<256> SimtForwardTight<64> SimtForwardTight<128> SimtForwardTight<256>
  BACKWARD SimtBackward<32> SimtBackward<64> SimtBackward<128> SimtBackwardTight<128> WANTS ${gradients_together} "Wants::all"
  WIDE SimtBackward<256> SimtBackwardTight<256> WANTS_WIDE ${gradients_apart}
  FORWARD_BY_PLACE SimtForwardTight<64> SimtForwardTight<128> SimtForwardTight<256>
  BACKWARD_BY_PLACE SimtBackward<64> SimtBackwardTight<128> WANTS_BY_PLACE ${gradients_together} WIDE_BY_PLACE SimtBackwardTight<256>)
headroom_instances(headroom_instances_of_any_card flash_sm80_tf32 ops/attention/sm80/sm80.cuh headroom::attention::blocks::sm80
  FORWARD "Sm80Forward<float, 32>" "Sm80Forward<float, 64>" "Sm80Forward<float, 128>" "Sm80Forward<float, 256>" "Sm80ForwardTight<float, 256>"
  BACKWARD "Sm80Backward<float, 32>" "Sm80Backward<float, 64>" "Sm80Backward<float, 128>" WANTS ${gradients_together}
  WIDE "Sm80Backward<float, 256>" "Sm80BackwardTight<float, 256>" WANTS_WIDE ${gradients_apart}
  FORWARD_BY_PLACE "Sm80Forward<float, 64>" "Sm80Forward<float, 128>" "Sm80ForwardTight<float, 256>"
  BACKWARD_BY_PLACE "Sm80Backward<float, 64>" "Sm80Backward<float, 128>" WANTS_BY_PLACE ${gradients_together}
  WIDE_BY_PLACE "Sm80BackwardTight<float, 256>")
headroom_instances(headroom_block_instances flash_sm80_tf32_all ops/attention/sm80/sm80.cuh headroom::attention::blocks::sm80
  BACKWARD "Sm80Backward<float, 32>" "Sm80Backward<float, 64>" "Sm80Backward<float, 128>" WANTS "Wants::all")
headroom_instances(headroom_instances_of_any_card flash_sm80_fp32 ops/attention/sm80/sm80.cuh headroom::attention::blocks::sm80
  FORWARD Sm80PartsForward<32> Sm80PartsForward<64> Sm80PartsForward<128> Sm80PartsForward<256> Sm80PartsForwardTight<256>
  BACKWARD Sm80PartsBackward<32> Sm80PartsBackward<64> Sm80PartsBackward<128> Sm80PartsBackward<256> Sm80PartsBackwardTight<256>
  WANTS ${gradients_together})
headroom_instances(headroom_block_instances flash_sm80_fp32_all ops/attention/sm80/sm80.cuh headroom::attention::blocks::sm80
  BACKWARD Sm80PartsBackward<32> Sm80PartsBackward<64> Sm80PartsBackward<128> Sm80PartsBackward<256> Sm80PartsBackwardTight<256> WANTS "Wants::all")
foreach(name_and_type "bf16 __nv_bfloat16" "fp16 __half")
  separate_arguments(name_and_type)
  list(GET name_and_type 0 name)
  list(GET name_and_type 1 type)
  headroom_instances(headroom_block_instances flash_sm80_${name}_32 ops/attention/sm80/sm80.cuh headroom::attention::blocks::sm80
    FORWARD "Sm80Forward<${type}, 32>")
  headroom_instances(headroom_instances_of_any_card flash_sm80_${name} ops/attention/sm80/sm80.cuh headroom::attention::blocks::sm80
    FORWARD "Sm80Forward<${type}, 64>" "Sm80Forward<${type}, 128>" "Sm80Forward<${type}, 256>"
    BACKWARD "Sm80Backward<${type}, 32>" "Sm80Backward<${type}, 64>" "Sm80Backward<${type}, 128>" WANTS ${gradients_together}
    WIDE "Sm80Backward<${type}, 256>" WANTS_WIDE ${gradients_apart}
    FORWARD_BY_PLACE "Sm80Forward<${type}, 64>" "Sm80Forward<${type}, 128>" "Sm80Forward<${type}, 256>"
    BACKWARD_BY_PLACE "Sm80Backward<${type}, 64>" "Sm80Backward<${type}, 128>" WANTS_BY_PLACE ${gradients_together}
    WIDE_BY_PLACE "Sm80Backward<${type}, 256>")
endforeach()
