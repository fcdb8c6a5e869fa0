/* The steps for one instruction set. Included once for each, with NAME, TARGET, VL (floats in a vector), MOST_ONE,
 * MOST_TWO and MOST_FOUR (vectors of a tile that fit its registers with one, two and four chains) and MOST_DIRECT (the same
 * for rows of few entries) defined. Every element is summed in the same order whatever the instruction set, layout, tile or
 * loop order, so that what a measurement picks never changes a bit of the result. */

#include "simd.h"

#include "conv_few_taps.h"
#include "data_movement.h"
#include "conv.h"

#if VL == 16
#include "conv_small_planes.h"

#include "conv_shared_loads.h"
#define SQUARE NAME(square)
#define SHARED NAME(shared)
#else
#define SQUARE 0 /* no program for these vectors has such steps */
#define SHARED 0
#endif

static const run_step NAME(steps)[] = {NAME(conv), NAME(dot),  NAME(split),  NAME(max_pool),
                                       NAME(mean), NAME(pack), NAME(unpack), NAME(direct),
                                       SQUARE,     SHARED,    NAME(echo),   NAME(clear),
                                       softmax,    log_softmax};

/* Billions of floating point operations a second with operands in registers: what no kernel can exceed. */
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

#undef VEC
#undef IVEC
#undef INLINE
#undef KEEP
#undef SQUARE
#undef SHARED
