/* The taps of one row of a kernel together: a vector that is loaded is used for each of them.
 *
 * A load takes about as long as two products, and where a weight is kept its neighbours to the left and right often are
 * too. So the sums of all distances to the side are in registers at once, and entries come by which of the distances have a
 * weight: a loop for each of those patterns. Table `entries`: an offset, then a weight for each distance of the pattern;
 * `starts`: words of it, for each row and pattern. On planes of few vectors a sum would wait for the one before: there every
 * other load has sums of its own. */

#define ASIDE 3 /* distances: none, and one to either side */
#define MOST_SHARED 8 /* vectors of a tile */
#define MOST_OF_TWO 4 /* the same with two chains */
#define PATTERNS ((1 << ASIDE) - 1)

static const int RANKED[PATTERNS] = {3, 5, 6, 7, 1, 2, 4}; /* the order of the patterns: distances as bits */

INLINE void NAME(add_load)(const int pattern, const int count, VEC *sum, const int32_t *word, const float *input) {
  const float *from = input + word[0], *weights = (const float *)word + 1;
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

/* With two chains the loads of a pattern are even in number, and every other one is summed apart. */
INLINE void NAME(add_pattern)(const int pattern, const int count, const int chains, VEC *sum, const int32_t *word,
                              const int32_t *end, const float *input) {
  const int size = 1 + __builtin_popcount(pattern);
  for (; word < end; word += chains * size) {
    NAME(add_load)(pattern, count, sum, word, input);
    if (chains == 2) NAME(add_load)(pattern, count, sum + ASIDE * count, word + size, input);
  }
}

INLINE void NAME(shared_tile)(const int count, const int chains, const enum mode mode, const struct NAME(job) * job) {
  const int32_t *words = (const int32_t *)job->entries, *starts = job->starts;
  VEC sums[2 * ASIDE * MOST_SHARED], begun[MOST_SHARED], *sum = sums;
  if (chains == 1) NAME(begin)(count, sum, job);
#pragma GCC unroll 32
  for (int t = chains == 1 ? count : 0; t < chains * ASIDE * count; t++) sum[t] = (VEC){0};
#pragma GCC unroll 32
  for (int rank = 0; rank < PATTERNS; rank++)
    NAME(add_pattern)(RANKED[rank], count, chains, sum, words + starts[rank], words + starts[rank + 1], job->input);
  if (chains == 2) {
#pragma GCC unroll 32
    for (int t = 0; t < ASIDE * count; t++) sum[t] += sum[ASIDE * count + t];
    NAME(begin)(count, begun, job);
#pragma GCC unroll 32
    for (int t = 0; t < count; t++) sum[t] = begun[t] + sum[t];
  }
#pragma GCC unroll 4
  for (int group = 1; group < ASIDE; group++) {
    if (group >= job->groups) break;
    const IVEC places = *(const IVEC *)(job->shifts + group * VL);
    if (job->distances[group] > 0)
      NAME(move)(count, mode, 1, sum, sum + group * count, places, job);
    else
      NAME(move)(count, mode, 0, sum, sum + group * count, places, job);
  }
  NAME(finish)(count, sum, job);
}

#define SHARED_TILE(n, chains, mode) \
  TARGET static __attribute__((noinline)) void NAME(shared_##n##_##chains##_##mode)(const struct NAME(job) * job) { \
    NAME(shared_tile)(n, chains, mode, job); \
  }
#define SHARED_TILES(mode) \
  SHARED_TILE(1, 1, mode) SHARED_TILE(2, 1, mode) SHARED_TILE(3, 1, mode) SHARED_TILE(4, 1, mode) \
  SHARED_TILE(5, 1, mode) SHARED_TILE(6, 1, mode) SHARED_TILE(7, 1, mode) SHARED_TILE(8, 1, mode) \
  SHARED_TILE(1, 2, mode) SHARED_TILE(2, 2, mode) SHARED_TILE(3, 2, mode) SHARED_TILE(4, 2, mode)
#define SHAREDS(mode) \
  {0, NAME(shared_1_1_##mode), NAME(shared_2_1_##mode), NAME(shared_3_1_##mode), NAME(shared_4_1_##mode), \
   NAME(shared_5_1_##mode), NAME(shared_6_1_##mode), NAME(shared_7_1_##mode), NAME(shared_8_1_##mode)}
#define SHAREDS_OF_TWO(mode) \
  {0, NAME(shared_1_2_##mode), NAME(shared_2_2_##mode), NAME(shared_3_2_##mode), NAME(shared_4_2_##mode)}
SHARED_TILES(SHORT_ROWS)
SHARED_TILES(PAIRS)
SHARED_TILES(LONG_ROWS)

static const NAME(run_tile) NAME(shared_tiles)[3][MOST_SHARED + 1] = {SHAREDS(SHORT_ROWS), SHAREDS(PAIRS),
                                                                      SHAREDS(LONG_ROWS)};
static const NAME(run_tile) NAME(shared_tiles_of_two)[3][MOST_OF_TWO + 1] = {
    SHAREDS_OF_TWO(SHORT_ROWS), SHAREDS_OF_TWO(PAIRS), SHAREDS_OF_TWO(LONG_ROWS)};

TARGET static void NAME(shared)(const struct step *step, const struct memory *memory) {
  const int64_t vectors = (step->segment_length + VL - 1) / VL, tile = step->tile, wide = step->out_pitch / VL;
  const int mode = wide <= 1 ? 0 : wide == 2 ? 1 : 2;
  const NAME(run_tile) *tiles = step->chains == 2 ? NAME(shared_tiles_of_two)[mode] : NAME(shared_tiles)[mode];
  struct NAME(job) job = NAME(new_job)(step, memory);
  job.shifts += (VL - 4) * step->groups; /* after those for vectors of 4 and 8 */
  for (int64_t first = 0; first < (step->tile_outer ? 1 : step->rows); first++) {
    const int64_t end = step->tile_outer ? step->rows : first + 1;
    for (int64_t t = 0; t < vectors; t += tile) {
      const int64_t count = vectors - t < tile ? vectors - t : tile;
      NAME(set_tile)(step, memory, &job, t * VL);
      for (int64_t row = first; row < end; row++) {
        NAME(set_row)(step, memory, &job, row, t * VL);
        job.starts = memory->tables + step->starts + row * PATTERNS;
        tiles[count](&job);
      }
    }
  }
}

#undef ASIDE
#undef MOST_SHARED
#undef MOST_OF_TWO
#undef PATTERNS
#undef SHARED_TILE
#undef SHARED_TILES
#undef SHAREDS
#undef SHAREDS_OF_TWO
