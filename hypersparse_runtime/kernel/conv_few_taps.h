/* Output channels with few entries: every entry is added in place from unaligned loads, and no sum is shifted.
 *
 * This needs one set of registers instead of two, so tiles are twice as long, and one loop instead of one for each distance.
 * Lanes that would read beyond the end of a row are masked: every entry has 32 bits in the table `edge_masks`, one for each
 * of the first and of the last 16 floats of a row. */

#ifdef ADD_INSIDE
#define EDGE_MASK __mmask16
INLINE EDGE_MASK NAME(first_edge)(int32_t bits) { return (EDGE_MASK)bits; }
INLINE EDGE_MASK NAME(last_edge)(int32_t bits) { return (EDGE_MASK)((uint32_t)bits >> 16); }
#else
#define EDGE_MASK IVEC
#if VL == 4
#define LANE_BITS ((IVEC){1, 2, 4, 8})
#else
#define LANE_BITS ((IVEC){1, 2, 4, 8, 16, 32, 64, 128})
#endif
INLINE EDGE_MASK NAME(first_edge)(int32_t bits) { return ((bits - (IVEC){0}) & LANE_BITS) == LANE_BITS; }
INLINE EDGE_MASK NAME(last_edge)(int32_t bits) { return NAME(first_edge)((int32_t)((uint32_t)bits >> (32 - VL))); }
#define ADD_INSIDE(sum, weight, value, edge) ((sum) + (weight) * (VEC)((IVEC)(value) & (edge)))
#define PORTABLE_INSIDE
#endif

/* `wide`: vectors in a row, 1 also where a vector holds several rows; 0 if known at run time only. */
INLINE void NAME(few_taps_tile)(const int count, const int wide, const struct NAME(job) * job) {
  VEC sum[MAX_TILE_FEW];
  NAME(begin)(count, sum, job);
  const int32_t *starts = AT(job->starts, 2), *edge_masks = job->edge_masks + starts[0];
  const struct entry *entry = job->entries + starts[0], *end = job->entries + starts[1];
  for (; entry < end; entry++, edge_masks++) {
    const float *from = job->input + AT(entry, 1)->offset;
    const VEC weight = entry->weight - (VEC){0};
    const EDGE_MASK first = NAME(first_edge)(*AT(edge_masks, 1)), last = NAME(last_edge)(*edge_masks);
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

#define FEW_TAPS_TILE(n, wide) \
  TARGET static __attribute__((noinline)) void NAME(few_taps_##n##_##wide)(const struct NAME(job) * job) { \
    NAME(few_taps_tile)(n, wide, job); \
  }
#if MAX_TILE_FEW == 24
#define FEW_TAPS_TILES(wide) \
  FEW_TAPS_TILE(1, wide) FEW_TAPS_TILE(2, wide) FEW_TAPS_TILE(4, wide) \
  FEW_TAPS_TILE(8, wide) FEW_TAPS_TILE(16, wide) FEW_TAPS_TILE(24, wide)
#define SIZES(wide) \
  {NAME(few_taps_1_##wide), NAME(few_taps_2_##wide), NAME(few_taps_4_##wide), NAME(few_taps_8_##wide), \
   NAME(few_taps_16_##wide), NAME(few_taps_24_##wide)}
static const int64_t NAME(sizes)[] = {1, 2, 4, 8, 16, 24};
#else
#define FEW_TAPS_TILES(wide) FEW_TAPS_TILE(1, wide) FEW_TAPS_TILE(2, wide) FEW_TAPS_TILE(4, wide) FEW_TAPS_TILE(8, wide)
#define SIZES(wide) \
  {NAME(few_taps_1_##wide), NAME(few_taps_2_##wide), NAME(few_taps_4_##wide), NAME(few_taps_8_##wide)}
static const int64_t NAME(sizes)[] = {1, 2, 4, 8};
#endif
#define COUNT_OF_SIZES ((int)(sizeof NAME(sizes) / sizeof *NAME(sizes)))
FEW_TAPS_TILES(0) FEW_TAPS_TILES(1) FEW_TAPS_TILES(2) FEW_TAPS_TILES(4)

typedef void (*NAME(run_few_taps))(const struct NAME(job) *);
static const NAME(run_few_taps) NAME(few_taps_tiles)[4][COUNT_OF_SIZES] = {SIZES(0), SIZES(1), SIZES(2), SIZES(4)};

/* The largest tile of at most `most` vectors; rows of two and four vectors stay whole. */
INLINE int NAME(size_for)(int64_t most) {
  int size = 0;
  while (size + 1 < COUNT_OF_SIZES && NAME(sizes)[size + 1] <= most) size++;
  return size;
}

TARGET static void NAME(conv_few_taps)(const struct step *step, const struct memory *memory) {
  const int64_t vectors = (step->segment_length + VL - 1) / VL, rows = step->rows;
  const int row_vectors = step->out_pitch > VL ? (int)(step->out_pitch / VL) : 1;
  const NAME(run_few_taps) *tiles = NAME(few_taps_tiles)[row_vectors == 4 ? 3 : row_vectors > 2 ? 0 : row_vectors];
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

#undef EDGE_MASK
#undef LANE_BITS
#ifdef PORTABLE_INSIDE
#undef ADD_INSIDE
#undef PORTABLE_INSIDE
#endif
#undef FEW_TAPS_TILE
#undef FEW_TAPS_TILES
#undef SIZES
#undef COUNT_OF_SIZES
