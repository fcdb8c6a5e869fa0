/* Sums of products over whole planes, in groups.
 *
 * A group holds the entries of one column distance. Where rows are whole vectors without zeros between them, a group is
 * summed from aligned loads. Its sum is then shifted sideways once, instead of every operand. */

INLINE void NAME(add_entries)(const int count, VEC *sum, const struct entry *entry, const struct entry *end,
                              const float *input) {
  for (; entry < end; entry++) {
    const float *from;
    const VEC weight = NAME(unpacked)(entry, input, &from);
#pragma GCC unroll 32
    for (int t = 0; t < count; t++) sum[t] += weight * NAME(load)(from + t * VL);
  }
}

/* With few vectors each sum waits for the one before. Separate sums of even and odd entries halve that. The number of
 * entries is even. */
INLINE void NAME(add_pairs)(const int count, VEC *even, const struct entry *entry, const struct entry *end,
                            const float *input) {
  VEC odd[MAX_TILE_2];
#pragma GCC unroll 32
  for (int t = 0; t < count; t++) odd[t] = (VEC){0};
  for (; entry < end; entry += 2) {
    const float *first, *second;
    const VEC one = NAME(unpacked)(entry, input, &first), two = NAME(unpacked)(entry + 1, input, &second);
#pragma GCC unroll 32
    for (int t = 0; t < count; t++) {
      even[t] += one * NAME(load)(first + t * VL);
      odd[t] += two * NAME(load)(second + t * VL);
    }
  }
#pragma GCC unroll 32
  for (int t = 0; t < count; t++) even[t] += odd[t];
}

/* The same for the smallest planes, with four sums. */
INLINE void NAME(add_fours)(const int count, VEC *sum, const struct entry *entry, const struct entry *end,
                            const float *input) {
  VEC second[MAX_TILE_4], third[MAX_TILE_4], fourth[MAX_TILE_4];
#pragma GCC unroll 32
  for (int t = 0; t < count; t++) second[t] = third[t] = fourth[t] = (VEC){0};
  for (; entry < end; entry += 4) {
#pragma GCC unroll 32
    for (int t = 0; t < count; t++) {
      (void)AT(entry, 4);
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
  const int32_t *starts = AT(job->starts + group, 2);
  const struct entry *entry = job->entries + starts[0], *end = job->entries + starts[1];
  if (chains == 4)
    NAME(add_fours)(count, sum, entry, end, job->input);
  else if (chains == 2)
    NAME(add_pairs)(count, sum, entry, end, job->input);
  else
    NAME(add_entries)(count, sum, entry, end, job->input);
}

/* Whether vector t of a tile is the last (right) or first (left) of its row. */
INLINE int NAME(at_edge)(const enum mode mode, int t, int right, int row_vectors) {
  if (mode == SHORT_ROWS) return 1;
  if (mode == PAIRS) return (t & 1) == right;
  return (right ? t + 1 : t) % row_vectors == 0;
}

/* A group's sums, shifted to the side. */
INLINE VEC NAME(moved)(const int count, const enum mode mode, const int right, int t, const VEC *part, const IVEC places,
                       const struct NAME(job) * job) {
  const int next = right ? t + 1 : t - 1;
  VEC beside = {0};
  if (next >= 0 && next < count && !NAME(at_edge)(mode, t, right, job->row_vectors)) beside = part[next];
  return __builtin_shuffle(part[t], beside, places);
}

INLINE void NAME(move)(const int count, const enum mode mode, const int right, VEC *total, const VEC *part,
                       const IVEC places, const struct NAME(job) * job) {
#pragma GCC unroll 32
  for (int t = 0; t < count; t++) total[t] += NAME(moved)(count, mode, right, t, part, places, job);
}

INLINE void NAME(tile)(const int count, const int chains, const enum mode mode, const struct NAME(job) * job) {
  VEC total[MAX_TILE_1], part[MAX_TILE_1];
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
      const IVEC places = *(const IVEC *)AT(job->shifts + group * VL, VL);
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
/* Four chains are for vectors of one position, which are never shifted. */
FOUR(1, STILL) FOUR(2, STILL)
#if MAX_TILE_4 == 4
FOUR(3, STILL) FOUR(4, STILL)
#define FOURS(mode) {0, NAME(four_1_##mode), NAME(four_2_##mode), NAME(four_3_##mode), NAME(four_4_##mode)}
#else
#define FOURS(mode) {0, NAME(four_1_##mode), NAME(four_2_##mode)}
#endif
#if MAX_TILE_1 == 14
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
  ONE(1, mode) ONE(2, mode) ONE(3, mode) ONE(4, mode) ONE(5, mode) ONE(6, mode) ONE(7, mode) LONG_TILES(mode) \
  TWO(1, mode) TWO(2, mode) TWO(3, mode) TWO(4, mode)
#define ONES(mode) \
  {0, NAME(one_1_##mode), NAME(one_2_##mode), NAME(one_3_##mode), NAME(one_4_##mode), NAME(one_5_##mode), \
   NAME(one_6_##mode), NAME(one_7_##mode) LONG_ONES(mode)}
#define TWOS(mode) {0, NAME(two_1_##mode), NAME(two_2_##mode), NAME(two_3_##mode), NAME(two_4_##mode)}
#if MAX_TILE_1 == 12
#define LONG_TILES(mode) ONE(8, mode) ONE(9, mode) ONE(10, mode) ONE(11, mode) ONE(12, mode)
#define LONG_ONES(mode) \
  , NAME(one_8_##mode), NAME(one_9_##mode), NAME(one_10_##mode), NAME(one_11_##mode), NAME(one_12_##mode)
#else
#define LONG_TILES(mode)
#define LONG_ONES(mode)
#endif
#endif
TILES(STILL)
#ifdef __wasm__ /* programs for it have zeros between rows, so that no sum is shifted */
static const NAME(run_tile) NAME(one_tiles)[1][MAX_TILE_1 + 1] = {ONES(STILL)};
static const NAME(run_tile) NAME(two_tiles)[1][MAX_TILE_2 + 1] = {TWOS(STILL)};
#else
TILES(SHORT_ROWS)
TILES(PAIRS)
TILES(LONG_ROWS)

static const NAME(run_tile) NAME(one_tiles)[4][MAX_TILE_1 + 1] = {ONES(STILL), ONES(SHORT_ROWS), ONES(PAIRS),
                                                                 ONES(LONG_ROWS)};
static const NAME(run_tile) NAME(two_tiles)[4][MAX_TILE_2 + 1] = {TWOS(STILL), TWOS(SHORT_ROWS), TWOS(PAIRS),
                                                                 TWOS(LONG_ROWS)};
#endif

static const NAME(run_tile) NAME(four_tiles)[MAX_TILE_4 + 1] = FOURS(STILL);

/* A run also computes the padding between rows, which mixes the ends of two rows. Readers expect zeros there. */
TARGET static inline void NAME(clear_pads)(const struct step *step, float *output, int64_t from, int64_t to) {
  const int64_t length = step->pad_length, stride = step->pad_stride, end = step->pad_end;
  int64_t pad = step->pad_first;
  if (from > pad) pad += (from - pad) / stride * stride;
  for (; pad < end && pad < to; pad += stride)
    for (int64_t i = pad < from ? from : pad; i < pad + length && i < to; i++) *AT(output + i, 1) = 0.0f;
  for (int64_t i = end > from ? end : from; i < to; i++) *AT(output + i, 1) = 0.0f;
}

TARGET static void NAME(conv)(const struct step *step, const struct memory *memory) {
  const int32_t *tables = memory->tables;
  const int64_t vectors = (step->segment_length + VL - 1) / VL, tile = step->tile;
#ifdef __wasm__
  const enum mode mode = STILL;
#else
  const int64_t wide = step->out_pitch / VL;
  const enum mode mode = step->shifts < 0 ? STILL : wide <= 1 ? SHORT_ROWS : wide == 2 ? PAIRS : LONG_ROWS;
#endif
  const NAME(run_tile) *tiles = step->chains == 4   ? NAME(four_tiles)
                                : step->chains == 2 ? NAME(two_tiles)[mode]
                                                    : NAME(one_tiles)[mode];
  struct NAME(job) job = NAME(new_job)(step, memory);
  job.shifts = tables + step->shifts + (VL - 4) * step->groups; /* after those for vectors of 4 and 8 */
  /* Either all rows of a tile before the next tile, or all tiles of a row before the next row. */
  for (int64_t first = 0; first < (step->tile_outer ? 1 : step->rows); first++) {
    const int64_t end = step->tile_outer ? step->rows : first + 1;
    for (int64_t segment = 0; segment < step->segments; segment++) {
      for (int64_t t = 0; t < vectors; t += tile) {
        const int64_t count = vectors - t < tile ? vectors - t : tile;
        const int64_t start = segment * step->segment_stride + t * VL;
        NAME(set_tile)(step, memory, &job, start);
        for (int64_t row = first; row < end; row++) {
          NAME(set_row)(step, memory, &job, row, start);
          tiles[count](&job);
          if (step->pad_stride) NAME(clear_pads)(step, job.output - t * VL, t * VL, (t + count) * VL);
        }
      }
    }
  }
}

/* A linear layer for one image. Same order of sums as a tile with several images: four chains and one group. */
TARGET static void NAME(dot)(const struct step *step, const struct memory *memory) {
  const int32_t *tables = memory->tables;
  const struct entry *entries = (const struct entry *)(tables + step->entries);
  const float *input = memory->workspace + step->input;
  for (int64_t row = 0; row < step->rows; row++) {
    const int32_t *starts = AT(tables + step->starts + row, 2);
    const struct entry *entry = entries + starts[0], *end = entries + starts[1];
    const int64_t at = *AT(tables + step->channels + row, 1) * step->output_plane;
    float sum = *AT((const float *)tables + step->bias + row, 1), part[4] = {0};
    if (step->plane >= 0) sum += *AT((const float *)tables + step->plane + row * step->plane_size, 1);
    if (step->residual >= 0) sum += *AT(memory->workspace + step->residual + at, 1);
    for (; entry < end; entry += 4) {
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++) part[i] = FUSED(AT(entry + i, 1)->weight, *AT(input + entry[i].offset, 1), part[i]);
    }
    sum += (part[0] + part[1]) + (part[2] + part[3]);
    if (step->clip >= 0) {
      const float *clip = AT((const float *)tables + step->clip, 2);
      sum = sum < clip[0] ? clip[0] : sum > clip[1] ? clip[1] : sum;
    }
    *AT(memory->workspace + step->output + at, 1) = step->relu && sum <= 0.0f ? 0.0f : sum;
  }
}

#undef ONE
#undef TWO
#undef FOUR
#undef FOURS
#undef ONES
#undef TWOS
#undef TILES
#undef LONG_TILES
#undef LONG_ONES
