/* The steps for one instruction set. Included once for each, with NAME, TARGET, VL (floats in a vector) and MOST
 * (vectors that fit its registers) defined. Every element is summed in the same order whatever the instruction set, tile
 * or loop order, so that what a measurement picks never changes a bit of the result. */

typedef float NAME(vec) __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef int32_t NAME(ivec) __attribute__((vector_size(VL * 4), aligned(4), may_alias));
#define VEC NAME(vec)
#define IVEC NAME(ivec)

struct NAME(job) {
  const struct entry *entry, *end;
  const float *input; /* where an entry with offset 0 reads */
  float *output;
  const float *plane; /* first position of the run, or NULL */
  const float *residual;
  float bias;
  int relu, lane_shift; /* of lanes, which are a power of two */
};

TARGET static inline __attribute__((always_inline)) VEC NAME(load)(const float *from) { return *(const VEC *)from; }

TARGET static inline __attribute__((always_inline)) void NAME(begin)(const int count, VEC *sum,
                                                                     const struct NAME(job) * job) {
#pragma GCC unroll 32
  for (int t = 0; t < count; t++) sum[t] = job->bias - (VEC){0};
  if (job->plane) {
    if (job->lane_shift == 0) {
#pragma GCC unroll 32
      for (int t = 0; t < count; t++) sum[t] += NAME(load)(job->plane + t * VL);
    } else {
#pragma GCC unroll 32
      for (int t = 0; t < count; t++) sum[t] += job->plane[(t * VL) >> job->lane_shift];
    }
  }
  if (job->residual) {
#pragma GCC unroll 32
    for (int t = 0; t < count; t++) sum[t] += NAME(load)(job->residual + t * VL);
  }
}

TARGET static inline __attribute__((always_inline)) void NAME(finish)(const int count, const VEC *sum,
                                                                      const struct NAME(job) * job) {
  if (job->relu) { /* keeps NaN, as PyTorch does */
#pragma GCC unroll 32
    for (int t = 0; t < count; t++) *(VEC *)(job->output + t * VL) = (VEC)((IVEC)sum[t] & ~(sum[t] <= 0.0f));
  } else {
#pragma GCC unroll 32
    for (int t = 0; t < count; t++) *(VEC *)(job->output + t * VL) = sum[t];
  }
}

TARGET static inline __attribute__((always_inline)) void NAME(one_chain)(const int count,
                                                                         const struct NAME(job) * job) {
  VEC sum[MOST];
  NAME(begin)(count, sum, job);
  const struct entry *end = job->end;
  const float *input = job->input;
  for (const struct entry *entry = job->entry; entry < end; entry++) {
    const float *from = input + entry->offset;
    const float weight = entry->weight;
#pragma GCC unroll 32
    for (int t = 0; t < count; t++) sum[t] += weight * NAME(load)(from + t * VL);
  }
  NAME(finish)(count, sum, job);
}

/* Few vectors wait for the sum before them: two chains halve that. */
TARGET static inline __attribute__((always_inline)) void NAME(two_chains)(const int count,
                                                                          const struct NAME(job) * job) {
  VEC even[MOST], odd[MOST];
  NAME(begin)(count, even, job);
#pragma GCC unroll 32
  for (int t = 0; t < count; t++) odd[t] = (VEC){0};
  const struct entry *entry = job->entry, *end = job->end;
  for (; entry + 1 < end; entry += 2) {
    const float *first = job->input + entry[0].offset, *second = job->input + entry[1].offset;
    const float one = entry[0].weight, two = entry[1].weight;
#pragma GCC unroll 32
    for (int t = 0; t < count; t++) {
      even[t] += one * NAME(load)(first + t * VL);
      odd[t] += two * NAME(load)(second + t * VL);
    }
  }
  if (entry < end) {
    const float *first = job->input + entry->offset;
#pragma GCC unroll 32
    for (int t = 0; t < count; t++) even[t] += entry->weight * NAME(load)(first + t * VL);
  }
#pragma GCC unroll 32
  for (int t = 0; t < count; t++) even[t] += odd[t];
  NAME(finish)(count, even, job);
}

#define ONE(n) \
  TARGET static __attribute__((noinline)) void NAME(one_##n)(const struct NAME(job) * job) { NAME(one_chain)(n, job); }
#define TWO(n) \
  TARGET static __attribute__((noinline)) void NAME(two_##n)(const struct NAME(job) * job) { NAME(two_chains)(n, job); }
ONE(1) ONE(2) ONE(3) ONE(4) ONE(5) ONE(6) ONE(7) ONE(8) ONE(9) ONE(10) ONE(11) ONE(12)
TWO(1) TWO(2) TWO(3) TWO(4) TWO(5) TWO(6)
#if MOST > 12
ONE(13) ONE(14) ONE(15) ONE(16) ONE(17) ONE(18) ONE(19) ONE(20) ONE(21) ONE(22) ONE(23) ONE(24)
TWO(7) TWO(8) TWO(9) TWO(10) TWO(11) TWO(12)
#endif

typedef void (*NAME(tile))(const struct NAME(job) *);

static const NAME(tile) NAME(one_tiles)[] = {
    0, NAME(one_1), NAME(one_2), NAME(one_3), NAME(one_4), NAME(one_5), NAME(one_6),
    NAME(one_7), NAME(one_8), NAME(one_9), NAME(one_10), NAME(one_11), NAME(one_12),
#if MOST > 12
    NAME(one_13), NAME(one_14), NAME(one_15), NAME(one_16), NAME(one_17), NAME(one_18),
    NAME(one_19), NAME(one_20), NAME(one_21), NAME(one_22), NAME(one_23), NAME(one_24),
#endif
};
static const NAME(tile) NAME(two_tiles)[] = {
    0, NAME(two_1), NAME(two_2), NAME(two_3), NAME(two_4), NAME(two_5), NAME(two_6),
#if MOST > 12
    NAME(two_7), NAME(two_8), NAME(two_9), NAME(two_10), NAME(two_11), NAME(two_12),
#endif
};

/* Floats of a run that lie between rows hold sums of two rows' ends; they are zero to whoever reads them. */
TARGET static inline void NAME(clear_pads)(const struct step *step, float *output, int64_t from, int64_t to) {
  const int64_t length = step->pad_length, stride = step->pad_stride, end = step->pad_end;
  int64_t pad = step->pad_first;
  if (from > pad) pad += (from - pad) / stride * stride;
  for (; pad < end && pad < to; pad += stride)
    for (int64_t i = pad < from ? from : pad; i < pad + length && i < to; i++) output[i] = 0.0f;
  for (int64_t i = end > from ? end : from; i < to; i++) output[i] = 0.0f;
}

/* One row's tile: `from` counts floats from the start of the run. */
TARGET static inline __attribute__((always_inline)) void NAME(row_tile)(const struct step *step,
                                                                        const struct memory *memory, int64_t row,
                                                                        int64_t segment, int64_t from, int64_t count) {
  const int32_t *tables = memory->tables;
  const int64_t start = segment * step->segment_stride + from;
  const int64_t at = step->output + tables[step->channels + row] * step->output_plane + start;
  const struct entry *entries = (const struct entry *)(tables + step->entries);
  const struct NAME(job) job = {
      .entry = entries + tables[step->starts + row],
      .end = entries + tables[step->starts + row + 1],
      .input = memory->workspace + step->input + start,
      .output = memory->workspace + at,
      .plane = step->plane < 0 ? 0
                               : (const float *)tables + step->plane + row * step->plane_size + (start >> step->lane_shift),
      .residual = step->residual < 0 ? 0 : memory->workspace + at - step->output + step->residual,
      .bias = ((const float *)tables)[step->bias + row],
      .relu = (int)step->relu,
      .lane_shift = (int)step->lane_shift,
  };
  (step->chains == 2 ? NAME(two_tiles) : NAME(one_tiles))[count](&job);
  if (step->pad_stride) NAME(clear_pads)(step, memory->workspace + at - from, from, from + count * VL);
}

TARGET static void NAME(conv)(const struct step *step, const struct memory *memory) {
  const int64_t vectors = (step->segment_length + VL - 1) / VL, tile = step->tile;
  if (step->tile_outer) {
    for (int64_t segment = 0; segment < step->segments; segment++)
      for (int64_t t = 0; t < vectors; t += tile)
        for (int64_t row = 0; row < step->rows; row++)
          NAME(row_tile)(step, memory, row, segment, t * VL, vectors - t < tile ? vectors - t : tile);
  } else {
    for (int64_t row = 0; row < step->rows; row++)
      for (int64_t segment = 0; segment < step->segments; segment++)
        for (int64_t t = 0; t < vectors; t += tile)
          NAME(row_tile)(step, memory, row, segment, t * VL, vectors - t < tile ? vectors - t : tile);
  }
}

/* A vector of one image: in two chains, as the tiles sum vectors of several images. */
TARGET static void NAME(dot)(const struct step *step, const struct memory *memory) {
  const int32_t *tables = memory->tables;
  const struct entry *entries = (const struct entry *)(tables + step->entries);
  const float *input = memory->workspace + step->input;
  for (int64_t row = 0; row < step->rows; row++) {
    const struct entry *entry = entries + tables[step->starts + row], *end = entries + tables[step->starts + row + 1];
    const int64_t at = tables[step->channels + row] * step->output_plane;
    float even = ((const float *)tables)[step->bias + row], odd = 0.0f;
    if (step->plane >= 0) even += ((const float *)tables)[step->plane + row * step->plane_size];
    if (step->residual >= 0) even += memory->workspace[step->residual + at];
    for (; entry + 1 < end; entry += 2) {
      even += entry[0].weight * input[entry[0].offset];
      odd += entry[1].weight * input[entry[1].offset];
    }
    if (entry < end) even += entry->weight * input[entry->offset];
    even += odd;
    memory->workspace[step->output + at] = step->relu && even <= 0.0f ? 0.0f : even;
  }
}

/* Every stride-th row and column of a channel as a plane of its own. Table: channel, first row, first column. */
TARGET static void NAME(split)(const struct step *step, const struct memory *memory) {
  const int32_t *triple = memory->tables + step->channels;
  const int64_t lanes = step->lanes, stride = step->stride_x * lanes;
  for (int64_t row = 0; row < step->rows; row++, triple += 3) {
    const float *from = memory->workspace + step->input + triple[0] * step->input_plane;
    float *to = memory->workspace + step->output + row * step->output_plane;
    const int64_t count = (step->width - triple[2] + step->stride_x - 1) / step->stride_x;
    for (int64_t y = triple[1]; y < step->height; y += step->stride_y, to += step->out_pitch * lanes) {
      const float *line = from + (y * step->pitch + triple[2]) * lanes;
      if (lanes == 1 && stride == 2) {
        for (int64_t x = 0; x < count; x++) to[x] = line[2 * x];
      } else {
        for (int64_t x = 0; x < count; x++)
          for (int64_t lane = 0; lane < lanes; lane++) to[x * lanes + lane] = line[x * stride + lane];
      }
    }
  }
}

TARGET static inline __attribute__((always_inline)) float NAME(larger)(float a, float b) {
  return a > b || a != a ? a : b;
}

TARGET static void NAME(pool_pairs)(const struct step *step, const float *from, float *to) {
  for (int64_t y = 0; y < step->out_height; y++) {
    const float *one = from + 2 * y * step->pitch, *two = one + step->pitch;
    float *line = to + y * step->out_pitch;
    for (int64_t x = 0; x < step->out_width; x++)
      line[x] = NAME(larger)(NAME(larger)(one[2 * x], one[2 * x + 1]), NAME(larger)(two[2 * x], two[2 * x + 1]));
  }
}

TARGET static void NAME(pool_line)(const struct step *step, const float *from, float *line, int64_t y) {
  const int64_t lanes = step->lanes;
  for (int64_t i = 0; i < step->out_width * lanes; i++) line[i] = -__builtin_inff();
  for (int64_t ky = 0; ky < step->kernel_y; ky++) {
    const int64_t row = y * step->stride_y - step->pad_y + ky;
    if (row < 0 || row >= step->height) continue;
    for (int64_t kx = 0; kx < step->kernel_x; kx++) {
      for (int64_t x = 0; x < step->out_width; x++) {
        const int64_t column = x * step->stride_x - step->pad_x + kx;
        if (column < 0 || column >= step->width) continue;
        const float *at = from + (row * step->pitch + column) * lanes;
        for (int64_t lane = 0; lane < lanes; lane++)
          line[x * lanes + lane] = NAME(larger)(line[x * lanes + lane], at[lane]);
      }
    }
  }
}

TARGET static void NAME(max_pool)(const struct step *step, const struct memory *memory) {
  const int32_t *channels = memory->tables + step->channels;
  const int pairs = step->lanes == 1 && step->kernel_y == 2 && step->kernel_x == 2 && step->stride_y == 2 &&
                    step->stride_x == 2 && step->pad_y == 0 && step->pad_x == 0;
  for (int64_t row = 0; row < step->rows; row++) {
    const float *from = memory->workspace + step->input + channels[row] * step->input_plane;
    float *to = memory->workspace + step->output + channels[row] * step->output_plane;
    if (pairs) {
      NAME(pool_pairs)(step, from, to);
    } else {
      for (int64_t y = 0; y < step->out_height; y++)
        NAME(pool_line)(step, from, to + y * step->out_pitch * step->lanes, y);
    }
  }
}

/* Columns are summed first, then over them, for one image or many in the same order. */
TARGET static void NAME(mean)(const struct step *step, const struct memory *memory) {
  const int32_t *channels = memory->tables + step->channels;
  const int64_t lanes = step->lanes, pitch = step->pitch * lanes;
  const float scale = 1.0f / (float)(step->height * step->width);
  for (int64_t row = 0; row < step->rows; row++) {
    const float *from = memory->workspace + step->input + channels[row] * step->input_plane;
    float *to = memory->workspace + step->output + channels[row] * step->output_plane;
    for (int64_t lane = 0; lane < lanes; lane++) to[lane] = 0.0f;
    for (int64_t x = 0; x < step->width * lanes; x += lanes < 8 ? 8 : lanes) {
      const int64_t wide = lanes < 8 ? (step->width - x < 8 ? step->width - x : 8) : lanes;
      float sum[64] = {0};
      for (int64_t y = 0; y < step->height; y++)
        for (int64_t i = 0; i < wide; i++) sum[i] += from[y * pitch + x + i];
      for (int64_t i = 0; i < wide; i++) to[lanes < 8 ? 0 : i] += sum[i];
    }
    for (int64_t lane = 0; lane < lanes; lane++) to[lane] *= scale;
  }
}

/* The caller's images into a value; lanes without an image are zero. */
TARGET static void NAME(pack)(const struct step *step, const struct memory *memory) {
  const int64_t lanes = step->lanes, height = step->out_height, width = step->out_width;
  const int32_t *channels = memory->tables + step->channels;
  for (int64_t row = 0; row < step->rows; row++) {
    float *plane = memory->workspace + step->output + channels[row] * step->output_plane;
    for (int64_t lane = 0; lane < lanes; lane++) {
      const float *image = memory->images + lane * memory->image_size + channels[row] * height * width;
      for (int64_t y = 0; y < height; y++) {
        float *line = plane + y * step->out_pitch * lanes + lane;
        const int64_t at = y * width;
        if (lanes == 1)
          for (int64_t x = 0; x < width; x++) line[x] = image[at + x];
        else if (lane < memory->images_here)
          for (int64_t x = 0; x < width; x++) line[x * lanes] = image[at + x];
        else
          for (int64_t x = 0; x < width; x++) line[x * lanes] = 0.0f;
      }
    }
  }
}

TARGET static void NAME(unpack)(const struct step *step, const struct memory *memory) {
  const int64_t lanes = step->lanes, height = step->height, width = step->width;
  for (int64_t lane = 0; lane < memory->images_here; lane++) {
    float *to = memory->outputs + lane * memory->output_size;
    for (int64_t row = 0; row < step->rows; row++)
      for (int64_t y = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++)
          *to++ = memory->workspace[step->input + row * step->input_plane + (y * step->pitch + x) * lanes + lane];
  }
}

static const run_step NAME(steps)[] = {NAME(conv), NAME(dot),  NAME(split), NAME(max_pool),
                                       NAME(mean), NAME(pack), NAME(unpack)};

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
#undef ONE
#undef TWO
