/* Rows of few entries: each is added where it belongs, from loads that may begin anywhere, and no sum is moved.
 *
 * That spares the sums' second set of registers, so that tiles are twice as long, and one loop takes the place of one for
 * each distance. What a tap reads beyond the end of a row is left out: every entry has 32 bits in the table `sides`, one
 * for each of the first and of the last 16 floats of a row. */

#ifdef ADD_INSIDE
#define SIDE __mmask16
INLINE SIDE NAME(first_side)(int32_t bits) { return (SIDE)bits; }
INLINE SIDE NAME(last_side)(int32_t bits) { return (SIDE)((uint32_t)bits >> 16); }
#else
#define SIDE IVEC
#if VL == 4
#define LANE_BITS ((IVEC){1, 2, 4, 8})
#else
#define LANE_BITS ((IVEC){1, 2, 4, 8, 16, 32, 64, 128})
#endif
INLINE SIDE NAME(first_side)(int32_t bits) { return ((bits - (IVEC){0}) & LANE_BITS) == LANE_BITS; }
INLINE SIDE NAME(last_side)(int32_t bits) { return NAME(first_side)((int32_t)((uint32_t)bits >> (32 - VL))); }
#define ADD_INSIDE(sum, weight, value, side) ((sum) + (weight) * (VEC)((IVEC)(value) & (side)))
#define PORTABLE_INSIDE
#endif

/* `wide`: vectors of a row, 1 also where a vector holds several rows; 0 where only the job knows. */
INLINE void NAME(direct_tile)(const int count, const int wide, const struct NAME(job) * job) {
  VEC sum[MOST_DIRECT];
  NAME(begin)(count, sum, job);
  const int32_t *starts = AT(job->starts, 2), *sides = job->sides + starts[0];
  const struct entry *entry = job->entries + starts[0], *end = job->entries + starts[1];
  for (; entry < end; entry++, sides++) {
    const float *from = job->input + AT(entry, 1)->offset;
    const VEC weight = entry->weight - (VEC){0};
    const SIDE first = NAME(first_side)(*AT(sides, 1)), last = NAME(last_side)(*sides);
    int place = job->place;
#pragma GCC unroll 32
    for (int t = 0; t < count; t++) {
      const int row = wide ? wide : job->row_vectors, at = wide ? t % wide : place;
      const VEC value = NAME(load)(from + t * VL);
      if (at == 0)
        sum[t] = ADD_INSIDE(sum[t], weight, value, first);
      else if (at == row - 1)
        sum[t] = ADD_INSIDE(sum[t], weight, value, last);
      else
        sum[t] += weight * value;
      if (!wide) place = place + 1 == row ? 0 : place + 1;
    }
  }
  NAME(finish)(count, sum, job);
}

#define DIRECT(n, wide) \
  TARGET static __attribute__((noinline)) void NAME(direct_##n##_##wide)(const struct NAME(job) * job) { \
    NAME(direct_tile)(n, wide, job); \
  }
#if MOST_DIRECT == 24
#define DIRECTS(wide) \
  DIRECT(1, wide) DIRECT(2, wide) DIRECT(4, wide) DIRECT(8, wide) DIRECT(16, wide) DIRECT(24, wide)
#define SIZES(wide) \
  {NAME(direct_1_##wide), NAME(direct_2_##wide), NAME(direct_4_##wide), NAME(direct_8_##wide), \
   NAME(direct_16_##wide), NAME(direct_24_##wide)}
static const int64_t NAME(sizes)[] = {1, 2, 4, 8, 16, 24};
#else
#define DIRECTS(wide) DIRECT(1, wide) DIRECT(2, wide) DIRECT(4, wide) DIRECT(8, wide)
#define SIZES(wide) \
  {NAME(direct_1_##wide), NAME(direct_2_##wide), NAME(direct_4_##wide), NAME(direct_8_##wide)}
static const int64_t NAME(sizes)[] = {1, 2, 4, 8};
#endif
#define COUNT_OF_SIZES ((int)(sizeof NAME(sizes) / sizeof *NAME(sizes)))
DIRECTS(0) DIRECTS(1) DIRECTS(2) DIRECTS(4)

typedef void (*NAME(run_direct))(const struct NAME(job) *);
static const NAME(run_direct) NAME(direct_tiles)[4][COUNT_OF_SIZES] = {SIZES(0), SIZES(1), SIZES(2), SIZES(4)};

/* The largest tile of at most so many vectors; rows of two and four vectors stay whole. */
INLINE int NAME(size_for)(int64_t most) {
  int size = 0;
  while (size + 1 < COUNT_OF_SIZES && NAME(sizes)[size + 1] <= most) size++;
  return size;
}

TARGET static void NAME(direct)(const struct step *step, const struct memory *memory) {
  const int64_t vectors = (step->segment_length + VL - 1) / VL, rows = step->rows;
  const int row_vectors = step->out_pitch > VL ? (int)(step->out_pitch / VL) : 1;
  const NAME(run_direct) *tiles = NAME(direct_tiles)[row_vectors == 4 ? 3 : row_vectors > 2 ? 0 : row_vectors];
  struct NAME(job) job = NAME(new_job)(step, memory);
  for (int64_t first = 0; first < (step->tile_outer ? 1 : rows); first++) {
    const int64_t end = step->tile_outer ? rows : first + 1;
    for (int64_t t = 0; t < vectors;) {
      const int64_t most = vectors - t < step->tile ? vectors - t : step->tile;
      const int size = NAME(size_for)(most);
      NAME(set_tile)(step, memory, &job, t * VL);
      job.place = (int)(t % row_vectors);
      for (int64_t row = first; row < end; row++) {
        NAME(set_row)(step, memory, &job, row, t * VL);
        tiles[size](&job);
      }
      t += NAME(sizes)[size];
    }
  }
}

#undef SIDE
#undef LANE_BITS
#ifdef PORTABLE_INSIDE
#undef ADD_INSIDE
#undef PORTABLE_INSIDE
#endif
#undef DIRECT
#undef DIRECTS
#undef SIZES
#undef COUNT_OF_SIZES
