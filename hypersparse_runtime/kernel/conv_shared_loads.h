/* The taps of one row of a kernel together: a vector that is loaded is used for each of them.
 *
 * A load takes about as long as two products, and where a weight is kept its neighbours to the left and right often are
 * too. So the sums of all distances to the side are in registers at once, and entries come by which of the distances have a
 * weight: a loop for each of those patterns. Where a layer reads more than the first cache holds, some rows are summed
 * together, over one block of channels after the other; their sums are kept aside in between. Table `entries`: an offset,
 * then a weight for each distance of the pattern; `starts`: words of it, for each block, row and pattern of every few rows. */

#define ASIDE 3 /* distances: none, and one to either side */
#define MOST_SHARED 8 /* vectors of a tile */
#define TOGETHER 8 /* rows that are summed block by block */
#define PATTERNS ((1 << ASIDE) - 1)

static const int RANKED[PATTERNS] = {3, 5, 6, 7, 1, 2, 4}; /* the order of the patterns: distances as bits */

INLINE void NAME(add_load)(const int pattern, const int count, VEC *sum, const int32_t *word, const float *input) {
  const float *from = input + AT(word, 1 + __builtin_popcount(pattern))[0], *weights = (const float *)word + 1;
  const int alone = __builtin_popcount(pattern) == 1;
  VEC weight[ASIDE];
  if (alone) {
    weight[0] = weight[1] = weight[2] = NAME(unpacked)(word, input, &from);
  } else {
#pragma GCC unroll 4
    for (int group = 0; group < ASIDE; group++)
      if (pattern >> group & 1) weight[group] = weights[__builtin_popcount(pattern & ((1 << group) - 1))] - (VEC){0};
  }
#pragma GCC unroll 32
  for (int t = 0; t < count; t++) {
    VEC value = NAME(load)(from + t * VL);
    if (!alone) KEEP(value);
#pragma GCC unroll 4
    for (int group = 0; group < ASIDE; group++)
      if (pattern >> group & 1) sum[group * count + t] += weight[group] * value;
  }
}

INLINE void NAME(add_pattern)(const int pattern, const int count, VEC *sum, const int32_t *word, const int32_t *end,
                              const float *input) {
  for (; word < end; word += 1 + __builtin_popcount(pattern)) NAME(add_load)(pattern, count, sum, word, input);
}

INLINE void NAME(shared_tile)(const int count, const enum mode mode, const struct NAME(job) * job) {
  const int32_t *words = (const int32_t *)job->entries, *starts = AT(job->starts, PATTERNS + 1);
  VEC sum[ASIDE * MOST_SHARED];
  if (job->first) {
    NAME(begin)(count, sum, job);
#pragma GCC unroll 32
    for (int t = count; t < ASIDE * count; t++) sum[t] = (VEC){0};
  } else {
#pragma GCC unroll 32
    for (int t = 0; t < ASIDE * count; t++) sum[t] = *(const VEC *)(job->kept + t * VL);
  }
#pragma GCC unroll 32
  for (int rank = 0; rank < PATTERNS; rank++)
    NAME(add_pattern)(RANKED[rank], count, sum, words + starts[rank], words + starts[rank + 1], job->input);
  if (!job->last) {
#pragma GCC unroll 32
    for (int t = 0; t < ASIDE * count; t++) *(VEC *)(job->kept + t * VL) = sum[t];
    return;
  }
#pragma GCC unroll 4
  for (int group = 1; group < ASIDE; group++) {
    if (group >= job->groups) break;
    const IVEC places = *(const IVEC *)AT(job->shifts + group * VL, VL);
    if (job->distances[group] > 0)
      NAME(move)(count, mode, 1, sum, sum + group * count, places, job);
    else
      NAME(move)(count, mode, 0, sum, sum + group * count, places, job);
  }
  NAME(finish)(count, sum, job);
}

#define SHARED_TILE(n, mode) \
  TARGET static __attribute__((noinline)) void NAME(shared_##n##_##mode)(const struct NAME(job) * job) { \
    NAME(shared_tile)(n, mode, job); \
  }
#define SHARED_TILES(mode) \
  SHARED_TILE(1, mode) SHARED_TILE(2, mode) SHARED_TILE(3, mode) SHARED_TILE(4, mode) \
  SHARED_TILE(5, mode) SHARED_TILE(6, mode) SHARED_TILE(7, mode) SHARED_TILE(8, mode)
#define SHAREDS(mode) \
  {0, NAME(shared_1_##mode), NAME(shared_2_##mode), NAME(shared_3_##mode), NAME(shared_4_##mode), \
   NAME(shared_5_##mode), NAME(shared_6_##mode), NAME(shared_7_##mode), NAME(shared_8_##mode)}
SHARED_TILES(SHORT_ROWS)
SHARED_TILES(PAIRS)
SHARED_TILES(LONG_ROWS)

static const NAME(run_tile) NAME(shared_tiles)[3][MOST_SHARED + 1] = {SHAREDS(SHORT_ROWS), SHAREDS(PAIRS),
                                                                      SHAREDS(LONG_ROWS)};

TARGET static void NAME(shared)(const struct step *step, const struct memory *memory) {
  const int64_t vectors = (step->segment_length + VL - 1) / VL, tile = step->tile, wide = step->out_pitch / VL;
  const NAME(run_tile) *tiles = NAME(shared_tiles)[wide <= 1 ? 0 : wide == 2 ? 1 : 2];
  float kept[TOGETHER][ASIDE * MOST_SHARED * VL] __attribute__((aligned(64)));
  struct NAME(job) job = NAME(new_job)(step, memory);
  job.shifts += (VL - 4) * step->groups; /* after those for vectors of 4 and 8 */
  for (int64_t t = 0; t < vectors; t += tile) {
    const int64_t count = vectors - t < tile ? vectors - t : tile;
    const int32_t *starts = memory->tables + step->starts;
    NAME(set_tile)(step, memory, &job, t * VL);
    for (int64_t begin = 0; begin < step->rows; begin += TOGETHER) {
      const int64_t end = begin + TOGETHER < step->rows ? begin + TOGETHER : step->rows;
      for (int64_t block = 0; block < step->blocks; block++) {
        job.first = block == 0, job.last = block + 1 == step->blocks;
        for (int64_t row = begin; row < end; row++, starts += PATTERNS) {
          NAME(set_row)(step, memory, &job, row, t * VL);
          job.starts = starts;
          job.kept = kept[row - begin];
          tiles[count](&job);
        }
      }
    }
  }
}

#undef ASIDE
#undef MOST_SHARED
#undef TOGETHER
#undef PATTERNS
#undef SHARED_TILE
#undef SHARED_TILES
#undef SHAREDS
