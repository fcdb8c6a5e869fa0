/* Vectors of one instruction set, and what every sum of products begins and ends with. */

typedef float NAME(vec) __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef int32_t NAME(ivec) __attribute__((vector_size(VL * 4), aligned(4), may_alias));
#define VEC NAME(vec)
#define IVEC NAME(ivec)
#define KEEP(vector) __asm__("" : "+v"(vector)) /* in its register: compilers like to load it again for each use */
#define INLINE TARGET static inline __attribute__((always_inline))

INLINE VEC NAME(load)(const float *from) { return *(const VEC *)AT(from, VL); }
INLINE void NAME(store)(float *to, VEC value) { *(VEC *)AT(to, VL) = value; }

/* The larger; the second where that is NaN, as in PyTorch's ReLU. */
INLINE VEC NAME(larger_of)(VEC first, VEC second) {
#ifdef LARGER
  return (VEC)LARGER(first, second);
#else
  const IVEC low = second <= first;
  return (VEC)(((IVEC)second & ~low) | ((IVEC)first & low));
#endif
}

/* The smaller; the second where that is NaN. */
INLINE VEC NAME(smaller_of)(VEC first, VEC second) {
#ifdef SMALLER
  return (VEC)SMALLER(first, second);
#else
  const IVEC high = second >= first;
  return (VEC)(((IVEC)second & ~high) | ((IVEC)first & high));
#endif
}

/* An entry's weight in every lane, and where it reads: one load of 64 bits, not two. Loads are what is short: 5 to 7 % of a
 * network where they are shared. */
INLINE VEC NAME(unpacked)(const void *entry, const float *input, const float **from) {
#if VL == 16
  int64_t both;
  __builtin_memcpy(&both, AT((const int32_t *)entry, 2), sizeof both);
  __asm__("" : "+r"(both)); /* compilers would load the parts */
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
  const int32_t *starts; /* of the groups' entries, one more than groups */
  const float *input;    /* where an entry with offset 0 reads */
  float *output;
  const float *plane; /* first position of the run, or NULL */
  const float *residual;
  const int32_t *mask;   /* first position of the run, or NULL */
  const int32_t *shifts; /* a vector of places for each group */
  const int32_t *distances;
  const int32_t *sides; /* of direct rows: a word for each entry */
  const float *clip; /* what sums are kept between, or NULL */
  float bias, offset, floor;
  int clamped; /* whether max(residual + offset, floor) is added and not just the residual */
  int relu, lane, lane_shift /* the first lane; and of lanes, which are a power of two */, groups, row_vectors;
  int place; /* of the first vector in its row */
  int first, last; /* whether a row's sums begin or end with these entries, where they are summed in blocks */
  float *kept;     /* sums between blocks */
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

/* What all rows and tiles of a step have in common. */
INLINE struct NAME(job) NAME(new_job)(const struct step *step, const struct memory *memory) {
  const int32_t *tables = memory->tables;
  return (struct NAME(job)){
      .entries = (const struct entry *)(tables + step->entries),
      .shifts = tables + step->shifts,
      .distances = tables + step->distances,
      .sides = tables + step->sides,
      .clamped = step->residues >= 0,
      .relu = (int)step->relu,
      .clip = step->clip < 0 ? 0 : (const float *)tables + step->clip,
      .lane_shift = (int)step->lane_shift,
      .groups = (int)step->groups,
      .row_vectors = step->out_pitch > VL ? (int)(step->out_pitch / VL) : 1,
  };
}

/* What is a tile's own; `start` counts floats from the start of a plane. */
INLINE void NAME(set_tile)(const struct step *step, const struct memory *memory, struct NAME(job) * job, int64_t start) {
  job->input = memory->workspace + step->input + start;
  job->mask = step->mask < 0 ? 0 : memory->tables + step->mask + start;
  job->lane = (int)(start & (step->lanes - 1));
}

/* What is a row's own. */
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
  if (step->residues < 0) return;
  const float *residue = AT((const float *)tables + step->residues + 2 * row, 2);
  job->offset = residue[0], job->floor = residue[1];
  if (residue[0] != residue[0]) job->residual = 0;
}
