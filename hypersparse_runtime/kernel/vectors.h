/* Vectors of one instruction set, and what every sum of products begins and ends with. */

typedef float NAME(vec) __attribute__((vector_size(VL * 4), aligned(4), may_alias));
typedef int32_t NAME(ivec) __attribute__((vector_size(VL * 4), aligned(4), may_alias));
#define VEC NAME(vec)
#define IVEC NAME(ivec)
#define INLINE TARGET static inline __attribute__((always_inline))

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
  float bias, offset, floor;
  int clamped; /* whether max(residual + offset, floor) is added and not just the residual */
  int relu, lane, lane_shift /* the first lane; and of lanes, which are a power of two */, groups, row_vectors;
  int place; /* of the first vector in its row */
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

/* What is a row's own; `start` counts floats from the start of the run. */
INLINE void NAME(set_row)(const struct step *step, const struct memory *memory, struct NAME(job) * job, int64_t row,
                          int64_t start) {
  const int32_t *tables = memory->tables;
  const int64_t at = tables[step->channels + row] * step->output_plane + start;
  job->starts = tables + step->starts + row * step->groups;
  job->output = memory->workspace + step->output + at;
  job->bias = ((const float *)tables)[step->bias + row];
  if (step->plane >= 0) job->plane = (const float *)tables + step->plane + row * step->plane_size + start;
  if (step->residual < 0) return;
  job->residual = memory->workspace + step->residual + at;
  if (step->residues < 0) return;
  const float *residue = (const float *)tables + step->residues + 2 * row;
  job->offset = residue[0], job->floor = residue[1];
  if (residue[0] != residue[0]) job->residual = 0;
}
