/* Vectors of one instruction set, and the start and end of every sum of products. */

typedef float NAME(vec) __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef int32_t NAME(ivec) __attribute__((vector_size(VL * 4), aligned(4), may_alias));
#define VEC NAME(vec)
#define IVEC NAME(ivec)
#ifdef __wasm__
#define KEEP(vector)
#else
#define KEEP(vector) __asm__("" : "+v"(vector)) /* in its register: compilers would load it again for each use */
#endif
#define INLINE TARGET static inline __attribute__((always_inline))
#ifdef __wasm__ /* the size of the file counts more than calls do */
#define SHARED static __attribute__((noinline))
#else
#define SHARED INLINE
#endif

INLINE VEC NAME(load)(const float *from) { return *(const VEC *)AT(from, VL); }
INLINE void NAME(store)(float *to, VEC value) { *(VEC *)AT(to, VL) = value; }

/* The maximum; the second where it is NaN, as in PyTorch's ReLU. */
INLINE VEC NAME(larger_of)(VEC first, VEC second) {
#ifdef LARGER
  return (VEC)LARGER(first, second);
#else
  const IVEC low = second <= first;
  return (VEC)(((IVEC)second & ~low) | ((IVEC)first & low));
#endif
}

/* The minimum; the second where it is NaN. */
INLINE VEC NAME(smaller_of)(VEC first, VEC second) {
#ifdef SMALLER
  return (VEC)SMALLER(first, second);
#else
  const IVEC high = second >= first;
  return (VEC)(((IVEC)second & ~high) | ((IVEC)first & high));
#endif
}

/* An entry's weight in every lane, and its input address: one load of 64 bits instead of two. Loads are the bottleneck; this
 * saves 5 to 7 % of a network's time where loads are shared. */
INLINE VEC NAME(unpacked)(const void *entry, const float *input, const float **from) {
#if VL == 16
  int64_t both;
  __builtin_memcpy(&both, AT((const int32_t *)entry, 2), sizeof both);
  __asm__("" : "+r"(both)); /* compilers would load both parts */
  *from = input + (int32_t)both;
  VEC weight = (VEC)_mm512_set1_epi32((int32_t)(both >> 32));
  KEEP(weight);
  return weight;
#else
  *from = input + AT((const struct entry *)entry, 1)->offset;
  return ((const struct entry *)entry)->weight - (VEC){0};
#endif
}

struct NAME(job) {
  const struct entry *entries;
  const int32_t *starts; /* where the entries of each group begin, groups + 1 */
  const float *input;    /* the input of an entry with offset 0 */
  float *output;
  const float *plane; /* first position of the run, or NULL */
  const float *residual;
  const int32_t *mask;   /* first position of the run, or NULL */
  const int32_t *shifts; /* a vector of lane indices for each group */
  const int32_t *distances;
  const int32_t *edge_masks; /* of CONV_FEW_TAPS: a word for each entry */
  const float *clip; /* lower and upper bound of sums, or NULL */
  float bias, offset, floor;
  int clamped; /* whether max(residual + offset, floor) is added instead of the residual */
  int relu, lane, lane_shift /* the first lane; log2 of lanes */, groups, row_vectors;
  int place; /* index of the first vector in its row */
  int first, last; /* whether these entries are the first or last block of a row */
  float *kept;     /* sums between blocks */
  float scale;     /* of the integer sums of CONV_INT8 */
};

INLINE void NAME(begin)(const int count, VEC *sum, const struct NAME(job) * job) {
#pragma GCC unroll 32
  for (int t = 0; t < count; t++) sum[t] = job->bias - (VEC){0};
  if (job->plane) {
    if (job->lane_shift == 0) {
#pragma GCC unroll 32
      for (int t = 0; t < count; t++) sum[t] += NAME(load)(job->plane + t * VL);
    } else {
#pragma GCC unroll 32
      for (int t = 0; t < count; t++) sum[t] += *AT(job->plane + ((job->lane + t * VL) >> job->lane_shift), 1);
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
  } else if (job->clip) {
    const float *clip = AT(job->clip, 2);
    const VEC low = clip[0] - (VEC){0}, high = clip[1] - (VEC){0};
#pragma GCC unroll 32
    for (int t = 0; t < count; t++) sum[t] = NAME(smaller_of)(high, NAME(larger_of)(low, sum[t]));
  }
  if (job->mask) {
#pragma GCC unroll 32
    for (int t = 0; t < count; t++) sum[t] = (VEC)((IVEC)sum[t] & *(const IVEC *)AT(job->mask + t * VL, VL));
  }
#pragma GCC unroll 32
  for (int t = 0; t < count; t++) NAME(store)(job->output + t * VL, sum[t]);
}

/* The part of a job that all rows and tiles of a step share. */
INLINE struct NAME(job) NAME(new_job)(const struct step *step, const struct memory *memory) {
  const int32_t *tables = memory->tables;
  return (struct NAME(job)){
      .entries = (const struct entry *)(tables + step->entries),
      .shifts = tables + step->shifts,
      .distances = tables + step->distances,
      .edge_masks = tables + step->edge_masks,
      .clamped = step->lazy_bias >= 0,
      .relu = (int)step->relu,
      .clip = step->clip < 0 ? 0 : (const float *)tables + step->clip,
      .lane_shift = (int)step->lane_shift,
      .groups = (int)step->groups,
      .row_vectors = step->out_pitch > VL ? (int)(step->out_pitch / VL) : 1,
  };
}

/* The part for one tile; `start` counts floats from the start of a plane. */
INLINE void NAME(set_tile)(const struct step *step, const struct memory *memory, struct NAME(job) * job, int64_t start) {
  job->input = memory->workspace + step->input + start;
  job->mask = step->mask < 0 ? 0 : memory->tables + step->mask + start;
  job->lane = (int)(start & (step->lanes - 1));
}

/* The part for one row. */
INLINE void NAME(set_row)(const struct step *step, const struct memory *memory, struct NAME(job) * job, int64_t row,
                          int64_t start) {
  const int32_t *tables = memory->tables;
  const int64_t at = *AT(tables + step->channels + row, 1) * step->output_plane + start;
  job->starts = tables + step->starts + row * step->groups;
  job->output = memory->workspace + step->output + at;
  job->bias = *AT((const float *)tables + step->bias + row, 1);
  if (step->plane >= 0)
    job->plane = (const float *)tables + step->plane + row * step->plane_size + (start >> step->lane_shift);
  if (step->residual < 0) return;
  job->residual = memory->workspace + step->residual + at;
  if (step->lazy_bias < 0) return;
  const float *lazy = AT((const float *)tables + step->lazy_bias + 2 * row, 2);
  job->offset = lazy[0], job->floor = lazy[1];
  if (lazy[0] != lazy[0]) job->residual = 0;
}
