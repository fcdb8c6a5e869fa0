/* The steps for one instruction set. Included once for each, with NAME, TARGET, VL (floats in a vector), MOST_ONE and
 * MOST_TWO (vectors of a tile that fit its registers with one and with two chains) defined. Every element is summed in
 * the same order whatever the instruction set, layout, tile or loop order, so that what a measurement picks never changes a
 * bit of the result.
 *
 * Entries come in groups of one distance x to the side. Where rows are whole vectors without zeros between them, a group
 * is summed from aligned loads and the sum is moved aside once, instead of every operand. */

typedef float NAME(vec) __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef int32_t NAME(ivec) __attribute__((vector_size(VL * 4), aligned(4), may_alias));
#define VEC NAME(vec)
#define IVEC NAME(ivec)
#define INLINE TARGET static inline __attribute__((always_inline))

struct NAME(job) {
  const struct entry *entries;
  const int32_t *starts; /* of the groups' entries, one more than groups */
  const float *input;    /* where an entry with offset 0 reads */
  float *output;
  const float *plane; /* first position of the run, or NULL */
  const float *residual;
  const int32_t *mask;   /* first position of the run, or NULL */
  const int32_t *shifts; /* a vector of places for each group */
  const int32_t *distances;
  float bias, offset, floor;
  int clamped; /* whether max(residual + offset, floor) is added and not just the residual */
  int relu, lane, lane_shift /* the first lane; and of lanes, which are a power of two */, groups, row_vectors;
};

INLINE VEC NAME(load)(const float *from) { return *(const VEC *)from; }

/* The larger; the second where that is NaN, as in PyTorch's ReLU. */
INLINE VEC NAME(larger_of)(VEC first, VEC second) {
#ifdef LARGER
  return (VEC)LARGER(first, second);
#else
  const IVEC low = second <= first;
  return (VEC)(((IVEC)second & ~low) | ((IVEC)first & low));
#endif
}

INLINE void NAME(begin)(const int count, VEC *sum, const struct NAME(job) * job) {
#pragma GCC unroll 32
  for (int t = 0; t < count; t++) sum[t] = job->bias - (VEC){0};
  if (job->plane) {
    if (job->lane_shift == 0) {
#pragma GCC unroll 32
      for (int t = 0; t < count; t++) sum[t] += NAME(load)(job->plane + t * VL);
    } else {
#pragma GCC unroll 32
      for (int t = 0; t < count; t++) sum[t] += job->plane[(job->lane + t * VL) >> job->lane_shift];
    }
  }
  if (!job->residual) return;
  if (job->clamped) {
#pragma GCC unroll 32
    for (int t = 0; t < count; t++) {
      const VEC value = NAME(load)(job->residual + t * VL) + job->offset;
      sum[t] += NAME(larger_of)(job->floor - (VEC){0}, value);
    }
  } else {
#pragma GCC unroll 32
    for (int t = 0; t < count; t++) sum[t] += NAME(load)(job->residual + t * VL);
  }
}

INLINE void NAME(finish)(const int count, VEC *sum, const struct NAME(job) * job) {
  if (job->relu) {
#pragma GCC unroll 32
    for (int t = 0; t < count; t++) sum[t] = NAME(larger_of)((VEC){0}, sum[t]);
  }
  if (job->mask) {
#pragma GCC unroll 32
    for (int t = 0; t < count; t++) sum[t] = (VEC)((IVEC)sum[t] & *(const IVEC *)(job->mask + t * VL));
  }
#pragma GCC unroll 32
  for (int t = 0; t < count; t++) *(VEC *)(job->output + t * VL) = sum[t];
}

INLINE void NAME(add_entries)(const int count, VEC *sum, const struct entry *entry, const struct entry *end,
                              const float *input) {
  for (; entry < end; entry++) {
    const float *from = input + entry->offset;
    const float weight = entry->weight;
#pragma GCC unroll 32
    for (int t = 0; t < count; t++) sum[t] += weight * NAME(load)(from + t * VL);
  }
}

/* Few vectors wait for the sum before them: even and odd entries apart halve that. Their number is even. */
INLINE void NAME(add_pairs)(const int count, VEC *even, const struct entry *entry, const struct entry *end,
                            const float *input) {
  VEC odd[MOST_TWO];
#pragma GCC unroll 32
  for (int t = 0; t < count; t++) odd[t] = (VEC){0};
  for (; entry < end; entry += 2) {
    const float *first = input + entry[0].offset, *second = input + entry[1].offset;
    const float one = entry[0].weight, two = entry[1].weight;
#pragma GCC unroll 32
    for (int t = 0; t < count; t++) {
      even[t] += one * NAME(load)(first + t * VL);
      odd[t] += two * NAME(load)(second + t * VL);
    }
  }
#pragma GCC unroll 32
  for (int t = 0; t < count; t++) even[t] += odd[t];
}

/* The same for the smallest planes, with every fourth entry. */
INLINE void NAME(add_fours)(const int count, VEC *sum, const struct entry *entry, const struct entry *end,
                            const float *input) {
  VEC second[MOST_FOUR], third[MOST_FOUR], fourth[MOST_FOUR];
#pragma GCC unroll 32
  for (int t = 0; t < count; t++) second[t] = third[t] = fourth[t] = (VEC){0};
  for (; entry < end; entry += 4) {
#pragma GCC unroll 32
    for (int t = 0; t < count; t++) {
      sum[t] += entry[0].weight * NAME(load)(input + entry[0].offset + t * VL);
      second[t] += entry[1].weight * NAME(load)(input + entry[1].offset + t * VL);
      third[t] += entry[2].weight * NAME(load)(input + entry[2].offset + t * VL);
      fourth[t] += entry[3].weight * NAME(load)(input + entry[3].offset + t * VL);
    }
  }
#pragma GCC unroll 32
  for (int t = 0; t < count; t++) sum[t] = (sum[t] + second[t]) + (third[t] + fourth[t]);
}

INLINE void NAME(add_group)(const int count, const int chains, VEC *sum, const struct NAME(job) * job, int group) {
  const struct entry *entry = job->entries + job->starts[group], *end = job->entries + job->starts[group + 1];
  if (chains == 4)
    NAME(add_fours)(count, sum, entry, end, job->input);
  else if (chains == 2)
    NAME(add_pairs)(count, sum, entry, end, job->input);
  else
    NAME(add_entries)(count, sum, entry, end, job->input);
}

/* Whether vector t of a tile is the last (first) of its row in the direction of the distance. */
INLINE int NAME(at_edge)(const enum mode mode, int t, int right, int row_vectors) {
  if (mode == SHORT_ROWS) return 1;
  if (mode == PAIRS) return (t & 1) == right;
  return (right ? t + 1 : t) % row_vectors == 0;
}

INLINE void NAME(move)(const int count, const enum mode mode, const int right, VEC *total, const VEC *part,
                       const IVEC places, const struct NAME(job) * job) {
#pragma GCC unroll 32
  for (int t = 0; t < count; t++) {
    const int next = right ? t + 1 : t - 1;
    VEC beside = {0};
    if (next >= 0 && next < count && !NAME(at_edge)(mode, t, right, job->row_vectors)) beside = part[next];
    total[t] += __builtin_shuffle(part[t], beside, places);
  }
}

INLINE void NAME(tile)(const int count, const int chains, const enum mode mode, const struct NAME(job) * job) {
  VEC total[MOST_ONE], part[MOST_ONE];
  NAME(begin)(count, total, job);
  if (chains == 1) NAME(add_group)(count, 1, total, job, 0);
  for (int group = chains == 1; group < job->groups; group++) {
    if (job->starts[group] == job->starts[group + 1]) continue;
#pragma GCC unroll 32
    for (int t = 0; t < count; t++) part[t] = (VEC){0};
    NAME(add_group)(count, chains, part, job, group);
    if (mode == STILL || job->distances[group] == 0) {
#pragma GCC unroll 32
      for (int t = 0; t < count; t++) total[t] += part[t];
    } else {
      const IVEC places = *(const IVEC *)(job->shifts + group * VL);
      if (job->distances[group] > 0)
        NAME(move)(count, mode, 1, total, part, places, job);
      else
        NAME(move)(count, mode, 0, total, part, places, job);
    }
  }
  NAME(finish)(count, total, job);
}

typedef void (*NAME(run_tile))(const struct NAME(job) *);

#define ONE(n, mode) \
  TARGET static __attribute__((noinline)) void NAME(one_##n##_##mode)(const struct NAME(job) * job) { \
    NAME(tile)(n, 1, mode, job); \
  }
#define TWO(n, mode) \
  TARGET static __attribute__((noinline)) void NAME(two_##n##_##mode)(const struct NAME(job) * job) { \
    NAME(tile)(n, 2, mode, job); \
  }
#define FOUR(n, mode) \
  TARGET static __attribute__((noinline)) void NAME(four_##n##_##mode)(const struct NAME(job) * job) { \
    NAME(tile)(n, 4, mode, job); \
  }
FOUR(1, STILL) FOUR(2, STILL) FOUR(1, SHORT_ROWS) FOUR(2, SHORT_ROWS)
#if MOST_FOUR == 4
FOUR(3, STILL) FOUR(4, STILL) FOUR(3, SHORT_ROWS) FOUR(4, SHORT_ROWS)
#define FOURS(mode) {0, NAME(four_1_##mode), NAME(four_2_##mode), NAME(four_3_##mode), NAME(four_4_##mode)}
#else
#define FOURS(mode) {0, NAME(four_1_##mode), NAME(four_2_##mode)}
#endif
#if MOST_ONE == 14
#define TILES(mode) \
  ONE(1, mode) ONE(2, mode) ONE(3, mode) ONE(4, mode) ONE(5, mode) ONE(6, mode) ONE(7, mode) \
  ONE(8, mode) ONE(9, mode) ONE(10, mode) ONE(11, mode) ONE(12, mode) ONE(13, mode) ONE(14, mode) \
  TWO(1, mode) TWO(2, mode) TWO(3, mode) TWO(4, mode) TWO(5, mode) TWO(6, mode) TWO(7, mode) TWO(8, mode)
#define ONES(mode) \
  {0, NAME(one_1_##mode), NAME(one_2_##mode), NAME(one_3_##mode), NAME(one_4_##mode), NAME(one_5_##mode), \
   NAME(one_6_##mode), NAME(one_7_##mode), NAME(one_8_##mode), NAME(one_9_##mode), NAME(one_10_##mode), \
   NAME(one_11_##mode), NAME(one_12_##mode), NAME(one_13_##mode), NAME(one_14_##mode)}
#define TWOS(mode) \
  {0, NAME(two_1_##mode), NAME(two_2_##mode), NAME(two_3_##mode), NAME(two_4_##mode), NAME(two_5_##mode), \
   NAME(two_6_##mode), NAME(two_7_##mode), NAME(two_8_##mode)}
#else
#define TILES(mode) \
  ONE(1, mode) ONE(2, mode) ONE(3, mode) ONE(4, mode) ONE(5, mode) ONE(6, mode) ONE(7, mode) \
  TWO(1, mode) TWO(2, mode) TWO(3, mode) TWO(4, mode)
#define ONES(mode) \
  {0, NAME(one_1_##mode), NAME(one_2_##mode), NAME(one_3_##mode), NAME(one_4_##mode), NAME(one_5_##mode), \
   NAME(one_6_##mode), NAME(one_7_##mode)}
#define TWOS(mode) {0, NAME(two_1_##mode), NAME(two_2_##mode), NAME(two_3_##mode), NAME(two_4_##mode)}
#endif
TILES(STILL)
TILES(SHORT_ROWS)
TILES(PAIRS)
TILES(LONG_ROWS)

static const NAME(run_tile) NAME(one_tiles)[4][MOST_ONE + 1] = {ONES(STILL), ONES(SHORT_ROWS), ONES(PAIRS),
                                                                 ONES(LONG_ROWS)};
static const NAME(run_tile) NAME(two_tiles)[4][MOST_TWO + 1] = {TWOS(STILL), TWOS(SHORT_ROWS), TWOS(PAIRS),
                                                                 TWOS(LONG_ROWS)};

static const NAME(run_tile) NAME(four_tiles)[2][MOST_FOUR + 1] = {FOURS(STILL), FOURS(SHORT_ROWS)};

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
INLINE void NAME(row_tile)(const struct step *step, const struct memory *memory, const NAME(run_tile) * tiles,
                           int64_t row, int64_t segment, int64_t from, int64_t count) {
  const int32_t *tables = memory->tables;
  const int64_t start = segment * step->segment_stride + from;
  const int64_t at = step->output + tables[step->channels + row] * step->output_plane + start;
  const float *residue = step->residues < 0 ? 0 : (const float *)tables + step->residues + 2 * row;
  const int adds = step->residual >= 0 && !(residue && residue[0] != residue[0]);
  const struct NAME(job) job = {
      .entries = (const struct entry *)(tables + step->entries),
      .starts = tables + step->starts + row * step->groups,
      .input = memory->workspace + step->input + start,
      .output = memory->workspace + at,
      .plane = step->plane < 0 ? 0
                               : (const float *)tables + step->plane + row * step->plane_size + (start >> step->lane_shift),
      .residual = adds ? memory->workspace + at - step->output + step->residual : 0,
      .offset = residue ? residue[0] : 0.0f,
      .floor = residue ? residue[1] : 0.0f,
      .clamped = residue != 0,
      .mask = step->mask < 0 ? 0 : tables + step->mask + start,
      .shifts = tables + step->shifts + (VL - 4) * step->groups, /* after those for vectors of 4 and 8 */
      .distances = tables + step->distances,
      .bias = ((const float *)tables)[step->bias + row],
      .relu = (int)step->relu,
      .lane = (int)(start & (step->lanes - 1)),
      .lane_shift = (int)step->lane_shift,
      .groups = (int)step->groups,
      .row_vectors = (int)(step->out_pitch / VL),
  };
  tiles[count](&job);
  if (step->pad_stride) NAME(clear_pads)(step, memory->workspace + at - from, from, from + count * VL);
}

TARGET static void NAME(conv)(const struct step *step, const struct memory *memory) {
  const int64_t vectors = (step->segment_length + VL - 1) / VL, tile = step->tile;
  const int64_t wide = step->out_pitch / VL;
  const enum mode mode = step->shifts < 0 ? STILL : wide <= 1 ? SHORT_ROWS : wide == 2 ? PAIRS : LONG_ROWS;
  const NAME(run_tile) *tiles = step->chains == 4   ? NAME(four_tiles)[mode]
                                : step->chains == 2 ? NAME(two_tiles)[mode]
                                                    : NAME(one_tiles)[mode];
  if (step->tile_outer) {
    for (int64_t segment = 0; segment < step->segments; segment++)
      for (int64_t t = 0; t < vectors; t += tile)
        for (int64_t row = 0; row < step->rows; row++)
          NAME(row_tile)(step, memory, tiles, row, segment, t * VL, vectors - t < tile ? vectors - t : tile);
  } else {
    for (int64_t row = 0; row < step->rows; row++)
      for (int64_t segment = 0; segment < step->segments; segment++)
        for (int64_t t = 0; t < vectors; t += tile)
          NAME(row_tile)(step, memory, tiles, row, segment, t * VL, vectors - t < tile ? vectors - t : tile);
  }
}

/* A vector of one image: summed as a tile sums vectors of several images, in four chains and one group. */
TARGET static void NAME(dot)(const struct step *step, const struct memory *memory) {
  const int32_t *tables = memory->tables;
  const struct entry *entries = (const struct entry *)(tables + step->entries);
  const float *input = memory->workspace + step->input;
  for (int64_t row = 0; row < step->rows; row++) {
    const struct entry *entry = entries + tables[step->starts + row], *end = entries + tables[step->starts + row + 1];
    const int64_t at = tables[step->channels + row] * step->output_plane;
    float sum = ((const float *)tables)[step->bias + row], part[4] = {0};
    if (step->plane >= 0) sum += ((const float *)tables)[step->plane + row * step->plane_size];
    if (step->residual >= 0) sum += memory->workspace[step->residual + at];
    for (; entry < end; entry += 4) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++) part[i] = FUSED(entry[i].weight, input[entry[i].offset], part[i]);
    }
    sum += (part[0] + part[1]) + (part[2] + part[3]);
    memory->workspace[step->output + at] = step->relu && sum <= 0.0f ? 0.0f : sum;
  }
}

typedef float NAME(eight) __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t NAME(eight_places) __attribute__((vector_size(32), aligned(4)));

typedef float NAME(four) __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t NAME(four_places) __attribute__((vector_size(16), aligned(4)));

INLINE void NAME(every_second)(const float *from, float *to, int64_t count) {
  const NAME(eight_places) even = {0, 2, 4, 6, 8, 10, 12, 14};
  int64_t x = 0;
  for (; x + 8 <= count; x += 8)
    *(NAME(eight) *)(to + x) =
        __builtin_shuffle(*(const NAME(eight) *)(from + 2 * x), *(const NAME(eight) *)(from + 2 * x + 8), even);
  for (; x + 4 <= count; x += 4) {
    const NAME(four_places) first = {0, 2, 4, 6};
    *(NAME(four) *)(to + x) =
        __builtin_shuffle(*(const NAME(four) *)(from + 2 * x), *(const NAME(four) *)(from + 2 * x + 4), first);
  }
  for (; x < count; x++) to[x] = from[2 * x];
}

/* Every second row and column of a plane of one image; rows of 8 and 16 are common enough to be written out. */
INLINE void NAME(split_pairs)(const struct step *step, const float *from, float *to, int64_t rows, int64_t count) {
  const int64_t stride = step->stride_y * step->pitch, out = step->out_pitch;
  if (count == 16) {
    for (int64_t y = 0; y < rows; y++) NAME(every_second)(from + y * stride, to + y * out, 16);
  } else if (count == 8) {
    for (int64_t y = 0; y < rows; y++) NAME(every_second)(from + y * stride, to + y * out, 8);
  } else {
    for (int64_t y = 0; y < rows; y++) NAME(every_second)(from + y * stride, to + y * out, count);
  }
}

/* Every stride-th row and column of a channel as a plane of its own. Table: channel, first row, first column. */
TARGET static void NAME(split)(const struct step *step, const struct memory *memory) {
  const int32_t *triple = memory->tables + step->channels;
  const int64_t lanes = step->lanes, stride = step->stride_x * lanes;
  for (int64_t row = 0; row < step->rows; row++, triple += 3) {
    const float *from = memory->workspace + step->input + triple[0] * step->input_plane;
    from += (triple[1] * step->pitch + triple[2]) * lanes;
    float *to = memory->workspace + step->output + row * step->output_plane;
    const int64_t count = (step->width - triple[2] + step->stride_x - 1) / step->stride_x;
    const int64_t rows = (step->height - triple[1] + step->stride_y - 1) / step->stride_y;
    if (stride == 2) {
      NAME(split_pairs)(step, from, to, rows, count);
      continue;
    }
    for (int64_t y = 0; y < rows; y++) {
      const float *line = from + y * step->stride_y * step->pitch * lanes;
      for (int64_t x = 0; x < count; x++)
        for (int64_t lane = 0; lane < lanes; lane++) to[(y * step->out_pitch + x) * lanes + lane] = line[x * stride + lane];
    }
  }
}

INLINE float NAME(larger)(float a, float b) {
  return a > b || a != a ? a : b;
}

/* The larger of two vectors, NaN if there is one. */
#define LARGER_OF(type, places, a, b) \
  ({ \
    const places first = ((a) > (b)) | ((a) != (a)); \
    (type)(((places)(a) & first) | ((places)(b) & ~first)); \
  })

INLINE int64_t NAME(pool_eights)(const float *one, const float *two, float *to, int64_t count) {
  const NAME(eight_places) even = {0, 2, 4, 6, 8, 10, 12, 14}, odd = {1, 3, 5, 7, 9, 11, 13, 15};
  int64_t x = 0;
  for (; x + 8 <= count; x += 8) {
    const NAME(eight) a = *(const NAME(eight) *)(one + 2 * x), b = *(const NAME(eight) *)(two + 2 * x);
    const NAME(eight) c = *(const NAME(eight) *)(one + 2 * x + 8), d = *(const NAME(eight) *)(two + 2 * x + 8);
    const NAME(eight) left = LARGER_OF(NAME(eight), NAME(eight_places), a, b);
    const NAME(eight) right = LARGER_OF(NAME(eight), NAME(eight_places), c, d);
    const NAME(eight) evens = __builtin_shuffle(left, right, even), odds = __builtin_shuffle(left, right, odd);
    *(NAME(eight) *)(to + x) = LARGER_OF(NAME(eight), NAME(eight_places), evens, odds);
  }
  return x;
}

INLINE int64_t NAME(pool_fours)(const float *one, const float *two, float *to, int64_t count, int64_t x) {
  const NAME(four_places) even = {0, 2, 4, 6}, odd = {1, 3, 5, 7};
  for (; x + 4 <= count; x += 4) {
    const NAME(four) a = *(const NAME(four) *)(one + 2 * x), b = *(const NAME(four) *)(two + 2 * x);
    const NAME(four) c = *(const NAME(four) *)(one + 2 * x + 4), d = *(const NAME(four) *)(two + 2 * x + 4);
    const NAME(four) left = LARGER_OF(NAME(four), NAME(four_places), a, b);
    const NAME(four) right = LARGER_OF(NAME(four), NAME(four_places), c, d);
    const NAME(four) evens = __builtin_shuffle(left, right, even), odds = __builtin_shuffle(left, right, odd);
    *(NAME(four) *)(to + x) = LARGER_OF(NAME(four), NAME(four_places), evens, odds);
  }
  return x;
}

TARGET static void NAME(pool_pairs)(const struct step *step, const float *from, float *to) {
  for (int64_t y = 0; y < step->out_height; y++) {
    const float *one = from + 2 * y * step->pitch, *two = one + step->pitch;
    float *line = to + y * step->out_pitch;
    int64_t x = NAME(pool_eights)(one, two, line, step->out_width);
    x = NAME(pool_fours)(one, two, line, step->out_width, x);
    for (; x < step->out_width; x++)
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

INLINE void NAME(column_sums)(const struct step *step, const float *from, float *to) {
  int64_t x = 0;
  for (; x + 8 <= step->width; x += 8) {
    NAME(eight) sum = {0};
    for (int64_t y = 0; y < step->height; y++) sum += *(const NAME(eight) *)(from + y * step->pitch + x);
    for (int i = 0; i < 8; i++) *to += sum[i];
  }
  for (; x < step->width; x++) {
    float sum = 0.0f;
    for (int64_t y = 0; y < step->height; y++) sum += from[y * step->pitch + x];
    *to += sum;
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
    if (lanes == 1) {
      NAME(column_sums)(step, from, to);
    } else {
      for (int64_t x = 0; x < step->width * lanes; x += lanes) {
        float sum[MOST_LANES] = {0};
        for (int64_t y = 0; y < step->height; y++)
          for (int64_t lane = 0; lane < lanes; lane++) sum[lane] += from[y * pitch + x + lane];
        for (int64_t lane = 0; lane < lanes; lane++) to[lane] += sum[lane];
      }
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
#undef INLINE
#undef LARGER_OF
#undef ONE
#undef TWO
#undef FOUR
#undef FOURS
#undef ONES
#undef TWOS
#undef TILES
