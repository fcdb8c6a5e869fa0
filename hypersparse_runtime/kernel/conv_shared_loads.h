/* Sums of products where the taps of one kernel row share a load.
 *
 * A load takes about as long as two products, and the neighbours of a nonzero weight are often nonzero too. The sums of all
 * column distances are therefore in registers at once. Entries are sorted by pattern, the set of distances with a weight,
 * with a loop for each pattern. If a layer reads more than the L1 cache holds, ROWS_PER_BLOCK rows are summed together, one
 * block of channels after another; their sums are stored in between.
 *
 * Tables: `entries` has an offset, then a weight for each distance of the pattern. `starts` has the word where each block,
 * row and pattern begins.
 *
 * conv_int8.h includes it again with INT8 for quads of bytes. Sums are then integers in the same registers. */

#define MAX_SHIFTS 3 /* column distances: 0, and one to each side */
#define MAX_TILE_SHARED 8 /* vectors of a tile */
#define ROWS_PER_BLOCK 8 /* rows that are summed block by block */
#define PATTERNS ((1 << MAX_SHIFTS) - 1)
#ifdef INT8
#define SUMS(word) NAME(word##_int8)
#define ADD_PRODUCT(sum, weight, value) \
  sum = (VEC)_mm512_dpbusd_epi32((__m512i)(sum), (__m512i)(value), (__m512i)(weight))
#else
#define SUMS(word) NAME(word)
#define ADD_PRODUCT(sum, weight, value) sum += (weight) * (value)

static const int PATTERN_ORDER[PATTERNS] = {3, 5, 6, 7, 1, 2, 4}; /* the order of the patterns: distances as bits */
#endif

INLINE void SUMS(add_load)(const int pattern, const int count, VEC *sum, const int32_t *word, const float *input) {
  const float *from = input + AT(word, 1 + __builtin_popcount(pattern))[0];
  const int alone = __builtin_popcount(pattern) == 1;
  VEC weight[MAX_SHIFTS];
  if (alone) {
    weight[0] = weight[1] = weight[2] = NAME(unpacked)(word, input, &from);
  } else {
#pragma GCC unroll 4
    for (int group = 0; group < MAX_SHIFTS; group++)
      if (pattern >> group & 1)
        weight[group] = (VEC)_mm512_set1_epi32(word[1 + __builtin_popcount(pattern & ((1 << group) - 1))]);
  }
#pragma GCC unroll 32
  for (int t = 0; t < count; t++) {
    VEC value = NAME(load)(from + t * VL);
    if (!alone) KEEP(value);
#pragma GCC unroll 4
    for (int group = 0; group < MAX_SHIFTS; group++)
      if (pattern >> group & 1) ADD_PRODUCT(sum[group * count + t], weight[group], value);
  }
}

INLINE void SUMS(add_pattern)(const int pattern, const int count, VEC *sum, const int32_t *word, const int32_t *end,
                              const float *input) {
  for (; word < end; word += 1 + __builtin_popcount(pattern)) SUMS(add_load)(pattern, count, sum, word, input);
}

INLINE void SUMS(shared_tile)(const int count, const enum mode mode, const struct NAME(job) * job) {
  const int32_t *words = (const int32_t *)job->entries, *starts = AT(job->starts, PATTERNS + 1);
  VEC sum[MAX_SHIFTS * MAX_TILE_SHARED];
  if (job->first) {
#ifdef INT8
    const int begun = 0;
#else
    const int begun = count;
    NAME(begin)(count, sum, job);
#endif
#pragma GCC unroll 32
    for (int t = begun; t < MAX_SHIFTS * count; t++) sum[t] = (VEC){0};
  } else {
#pragma GCC unroll 32
    for (int t = 0; t < MAX_SHIFTS * count; t++) sum[t] = *(const VEC *)(job->kept + t * VL);
  }
#pragma GCC unroll 32
  for (int rank = 0; rank < PATTERNS; rank++)
    SUMS(add_pattern)(PATTERN_ORDER[rank], count, sum, words + starts[rank], words + starts[rank + 1], job->input);
  if (!job->last) {
#pragma GCC unroll 32
    for (int t = 0; t < MAX_SHIFTS * count; t++) *(VEC *)(job->kept + t * VL) = sum[t];
    return;
  }
#pragma GCC unroll 4
  for (int group = 1; group < MAX_SHIFTS; group++) {
    if (group >= job->groups) break;
    const IVEC places = *(const IVEC *)AT(job->shifts + group * VL, VL);
    if (job->distances[group] > 0)
      SUMS(move)(count, mode, 1, sum, sum + group * count, places, job);
    else
      SUMS(move)(count, mode, 0, sum, sum + group * count, places, job);
  }
#ifdef INT8
  VEC total[MAX_TILE_SHARED];
  NAME(begin)(count, total, job);
#pragma GCC unroll 32
  for (int t = 0; t < count; t++) total[t] += job->scale * (VEC)_mm512_cvtepi32_ps((__m512i)sum[t]);
  NAME(finish)(count, total, job);
#else
  NAME(finish)(count, sum, job);
#endif
}

#define SHARED_TILE(n, mode) \
  TARGET static __attribute__((noinline)) void SUMS(shared_##n##_##mode)(const struct NAME(job) * job) { \
    SUMS(shared_tile)(n, mode, job); \
  }
#define SHARED_TILES(mode) \
  SHARED_TILE(1, mode) SHARED_TILE(2, mode) SHARED_TILE(3, mode) SHARED_TILE(4, mode) \
  SHARED_TILE(5, mode) SHARED_TILE(6, mode) SHARED_TILE(7, mode) SHARED_TILE(8, mode)
#define SHAREDS(mode) \
  {0, SUMS(shared_1_##mode), SUMS(shared_2_##mode), SUMS(shared_3_##mode), SUMS(shared_4_##mode), \
   SUMS(shared_5_##mode), SUMS(shared_6_##mode), SUMS(shared_7_##mode), SUMS(shared_8_##mode)}
SHARED_TILES(SHORT_ROWS)
SHARED_TILES(PAIRS)
SHARED_TILES(LONG_ROWS)

static const NAME(run_tile) SUMS(shared_tiles)[3][MAX_TILE_SHARED + 1] = {SHAREDS(SHORT_ROWS), SHAREDS(PAIRS),
                                                                      SHAREDS(LONG_ROWS)};

TARGET static void SUMS(conv_shared_loads)(const struct step *step, const struct memory *memory) {
  const int64_t vectors = (step->segment_length + VL - 1) / VL, tile = step->tile, wide = step->out_pitch / VL;
  const NAME(run_tile) *tiles = SUMS(shared_tiles)[wide <= 1 ? 0 : wide == 2 ? 1 : 2];
  float kept[ROWS_PER_BLOCK][MAX_SHIFTS * MAX_TILE_SHARED * VL] __attribute__((aligned(64)));
  struct NAME(job) job = NAME(new_job)(step, memory);
  job.shifts += (VL - 4) * step->groups; /* after those for vectors of 4 and 8 */
#ifdef INT8
  const float image_scale = *AT(memory->workspace + step->kernel_x, 1);
#endif
  for (int64_t t = 0; t < vectors; t += tile) {
    const int64_t count = vectors - t < tile ? vectors - t : tile;
    const int32_t *starts = memory->tables + step->starts;
    NAME(set_tile)(step, memory, &job, t * VL);
    for (int64_t begin = 0; begin < step->rows; begin += ROWS_PER_BLOCK) {
      const int64_t end = begin + ROWS_PER_BLOCK < step->rows ? begin + ROWS_PER_BLOCK : step->rows;
      for (int64_t block = 0; block < step->blocks; block++) {
        job.first = block == 0, job.last = block + 1 == step->blocks;
        for (int64_t row = begin; row < end; row++, starts += PATTERNS) {
          NAME(set_row)(step, memory, &job, row, t * VL);
          job.starts = starts;
#ifdef INT8
          job.scale = image_scale * *AT((const float *)memory->tables + step->kernel_y + row, 1);
#endif
          job.kept = kept[row - begin];
          tiles[count](&job);
        }
      }
    }
  }
}

#undef MAX_SHIFTS
#undef MAX_TILE_SHARED
#undef ROWS_PER_BLOCK
#undef PATTERNS
#undef SHARED_TILE
#undef SHARED_TILES
#undef SHAREDS
#undef SUMS
#undef ADD_PRODUCT
