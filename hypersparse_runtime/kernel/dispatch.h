/* The steps for one instruction set; included once for each. Before that these are defined: NAME, TARGET, VL (floats in a
 * vector), MAX_TILE_1, MAX_TILE_2 and MAX_TILE_4 (vectors of a tile that fit the registers with one, two and four chains),
 * MAX_TILE_FEW (the same for rows with few entries), MATMUL_ROWS and MATMUL_VECTORS (a tile of a product of two values). Every element is summed in the same order for every instruction set,
 * layout, tile and loop order. Autotuning therefore never changes a bit of the result. */

#include "simd.h"

#ifdef __wasm__
#define CONV_FEW 0 /* programs for it have no such steps */
#define WINOGRAD_STEPS
#else
#include "conv_few_taps.h"
#include "conv_winograd.h"
#define CONV_FEW NAME(conv_few_taps)
#define WINOGRAD_STEPS , NAME(winograd_input), NAME(winograd_output)
#endif
#include "data_movement.h"
#include "conv.h"
#include "elementwise.h"
#include "tokens.h"

#if VL == 16
#include "conv_small_planes.h"

#include "conv_shared_loads.h"
#define CONV_SMALL NAME(conv_small_planes)
#define CONV_SHARED NAME(conv_shared_loads)
#define INT8_STEPS , NAME(conv_shared_loads_int8), NAME(largest), NAME(quantize)
#include "conv_int8.h"
#else
#define INT8_STEPS
#define CONV_SMALL 0 /* programs for these vectors have no such steps */
#define CONV_SHARED 0
#endif

#define VALUE_STEPS \
  , NAME(copy), NAME(elementwise), NAME(arithmetic), NAME(layer_norm), NAME(group_norm), NAME(matmul), \
      NAME(softmax_planes), NAME(reduce), NAME(embedding), NAME(resample), NAME(lstm), NAME(gru)

static const run_step NAME(steps)[] = {NAME(conv), NAME(dot),   NAME(split),       NAME(max_pool), NAME(mean),
                                       NAME(pack), NAME(unpack), CONV_FEW,          CONV_SMALL,     CONV_SHARED,
                                       NAME(repeat_rows), NAME(clear), softmax, log_softmax VALUE_STEPS WINOGRAD_STEPS
                                       INT8_STEPS};

#ifndef __wasm__
/* Billions of floating-point operations per second with operands in registers: an upper bound for every kernel. */
TARGET static double NAME(peak)(int64_t rounds) {
  VEC sum[10];
  for (int t = 0; t < 10; t++) sum[t] = (float)t - (VEC){0};
  const double began = seconds();
  for (int64_t round = 0; round < rounds; round++) {
#pragma GCC unroll 32
    for (int t = 0; t < 10; t++) {
      sum[t] = sum[t] * 0.999f + 0.5f;
      HOLD(sum[t]);
    }
  }
  return 2e-9 * VL * 10 * (double)rounds / (seconds() - began);
}
#endif

#undef VEC
#undef IVEC
#undef INLINE
#undef KEEP
#undef SHARED
#undef CONV_FEW
#undef CONV_SMALL
#undef CONV_SHARED
#undef VALUE_STEPS
#undef WINOGRAD_STEPS
#undef INT8_STEPS

/* What is defined before it is included. */
#undef NAME
#undef LARGER
#undef SMALLER
#undef ADD_INSIDE
#undef TARGET
#undef VL
#undef MAX_TILE_1
#undef MAX_TILE_2
#undef MAX_TILE_4
#undef MAX_TILE_FEW
#undef MATMUL_ROWS
#undef MATMUL_VECTORS
