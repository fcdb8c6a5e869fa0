/* Sums of products of bytes, four at a time, with AVX-512 VNNI.
 *
 * A quad is a word of four unsigned bytes: the values of four channels at one position. Planes of quads lie as planes of
 * floats do, and the loops are those of conv_shared_loads.h, with four signed bytes as a weight. Sums are exact in 32 bits;
 * int8.py leaves out layers whose sums may exceed them.
 *
 * LARGEST stores the scale of a value: its largest number / 255, or NaN if one is not finite, in 16 equal floats. QUANTIZE
 * rounds the channels of a table to quads; input numbers are not negative. For QUANTIZE and CONV_INT8, kernel_x is where the
 * scale lies. For CONV_INT8, kernel_y is a table of the scales of the rows' weights. There is one image. */

#define TINY 1e-30f /* a scale below this counts as zero: its inverse may be infinite */

TARGET static void NAME(largest)(const struct step *step, const struct memory *memory) {
  VEC most[4] = {0}, nothing[4] = {0}; /* four of each, so that none waits for the one before */
  for (int64_t i = 0; i < step->blocks; i++) {
    const int64_t channel = *AT(memory->tables + step->channels + i, 1);
    const float *plane = memory->workspace + step->input + channel * step->input_plane;
    for (int64_t at = 0; at < step->segment_length; at += 4 * VL) {
#pragma GCC unroll 4
      for (int t = 0; t < 4; t++) {
        if (at + t * VL >= step->segment_length) break;
        const VEC value = NAME(load)(plane + at + t * VL);
        most[t] = NAME(larger_of)(most[t], value);
        nothing[t] += 0.0f * value; /* NaN for NaN and infinity */
      }
    }
  }
  float largest = 0.0f, sum = 0.0f;
  for (int i = 0; i < 4 * VL; i++) {
    const float value = most[i / VL][i % VL];
    largest = value > largest ? value : largest;
    sum += nothing[i / VL][i % VL];
  }
  NAME(store)(memory->workspace + step->output, (largest / 255.0f + sum) - (VEC){0});
}

TARGET static void NAME(quantize)(const struct step *step, const struct memory *memory) {
  const float scale = *AT(memory->workspace + step->kernel_x, 1);
  const VEC steps = (scale > TINY ? 1.0f / scale : 0.0f) - (VEC){0};
  for (int64_t row = 0; row < step->rows; row++) {
    const int32_t *channels = AT(memory->tables + step->channels + 4 * row, 4);
    const float *input = memory->workspace + step->input;
    float *output = memory->workspace + step->output + row * step->output_plane;
    for (int64_t at = 0; at < step->segment_length; at += VL) {
      __m512i quad = _mm512_setzero_si512();
#pragma GCC unroll 4
      for (int i = 3; i >= 0; i--) {
        const VEC value = steps * NAME(load)(input + channels[i] * step->input_plane + at);
        quad = _mm512_or_si512(_mm512_slli_epi32(quad, 8), _mm512_cvtps_epi32((__m512)value));
      }
      NAME(store)(output + at, (VEC)quad);
    }
  }
}

#pragma push_macro("TARGET")
#undef TARGET
#define TARGET __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx512vnni,fma,prefer-vector-width=512")))

/* Adds the sums of one distance, shifted to the side, to the unshifted ones. */
INLINE void NAME(move_int8)(const int count, const enum mode mode, const int right, VEC *total, const VEC *part,
                            const IVEC places, const struct NAME(job) * job) {
#pragma GCC unroll 32
  for (int t = 0; t < count; t++)
    total[t] = (VEC)((IVEC)total[t] + (IVEC)NAME(moved)(count, mode, right, t, part, places, job));
}

#define INT8
#include "conv_shared_loads.h"
#undef INT8
#pragma pop_macro("TARGET")
#undef TINY
