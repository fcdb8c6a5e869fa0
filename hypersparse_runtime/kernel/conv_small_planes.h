/* Small planes: a few vectors with several rows in each, where every tap would start inside a vector. Entries are summed by
 * tap from aligned loads of whole planes, and the sum of each tap is shifted once, vertically and horizontally.
 *
 * Tables: `shifts` has a vector of lane indices for each tap, into a vector and its neighbour. `distances` has pairs: which
 * neighbour that is (-1 or 1; 0: no shift), and a mask of the lanes that are written. */

INLINE void NAME(small_plane_tile)(const int count, const struct NAME(job) * job) {
  VEC total[4], part[4];
  NAME(begin)(count, total, job);
  for (int group = 0; group < job->groups; group++) {
    const int32_t *starts = AT(job->starts + group, 2);
    const struct entry *entry = job->entries + starts[0], *end = job->entries + starts[1];
    if (entry == end) continue;
#pragma GCC unroll 4
    for (int t = 0; t < count; t++) part[t] = (VEC){0};
    NAME(add_pairs)(count, part, entry, end, job->input);
    const int beside = AT(job->distances + 2 * group, 2)[0];
    if (beside == 0) {
#pragma GCC unroll 4
      for (int t = 0; t < count; t++) total[t] += part[t];
      continue;
    }
    const IVEC places = *(const IVEC *)AT(job->shifts + group * VL, VL);
    const __mmask16 lanes = (__mmask16)job->distances[2 * group + 1];
    const VEC nothing = {0};
#pragma GCC unroll 4
    for (int t = 0; t < count; t++) {
      const VEC next = t + 1 < count ? part[t + 1] : nothing, last = t > 0 ? part[t - 1] : nothing;
      const VEC moved = (VEC)_mm512_permutex2var_ps(part[t], (__m512i)places, beside > 0 ? next : last);
      total[t] = (VEC)_mm512_mask_add_ps(total[t], lanes, total[t], moved);
    }
  }
  NAME(finish)(count, total, job);
}

TARGET static void NAME(conv_small_planes)(const struct step *step, const struct memory *memory) {
  const int64_t vectors = (step->segment_length + VL - 1) / VL;
  struct NAME(job) job = NAME(new_job)(step, memory);
  NAME(set_tile)(step, memory, &job, 0);
  for (int64_t row = 0; row < step->rows; row++) {
    NAME(set_row)(step, memory, &job, row, 0);
    switch (vectors) {
      case 1: NAME(small_plane_tile)(1, &job); break;
      case 2: NAME(small_plane_tile)(2, &job); break;
      case 3: NAME(small_plane_tile)(3, &job); break;
      default: NAME(small_plane_tile)(4, &job);
    }
  }
}
