/* Winograd's F(4, 3) on columns: four rows of an output from six rows of products instead of twelve.
 *
 * WINOGRAD_INPUT combines each six rows of a plane, four apart, to one row in each of six planes. Between the two, products
 * are summed in those planes as in any other, with no tap up or down. WINOGRAD_OUTPUT combines six rows of sums to four.
 * The points are 0, 1, -1, 2, -2 and infinity. All factors are powers of two, so that it is the same rounding whether a
 * compiler fuses a product with a sum or not. */

INLINE void NAME(winograd_rows)(const float *const *from, const int64_t at, float *to, const int64_t component) {
  VEC row[6];
#pragma GCC unroll 6
  for (int i = 0; i < 6; i++) row[i] = from[i] ? NAME(load)(from[i] + at) : (VEC){0};
  const VEC even = row[4] - row[2], odd = row[3] - row[1];
  const VEC even_at_1 = row[4] - 4.0f * row[2], odd_at_1 = row[3] - 4.0f * row[1];  // for the points 1 and -1
  NAME(store)(to, 4.0f * (row[0] - row[2]) + even);
  NAME(store)(to + component, even_at_1 + odd_at_1);
  NAME(store)(to + 2 * component, even_at_1 - odd_at_1);
  NAME(store)(to + 3 * component, even + 2.0f * odd);
  NAME(store)(to + 4 * component, even - 2.0f * odd);
  NAME(store)(to + 5 * component, (row[5] - row[3]) - 4.0f * odd);
}

TARGET static void NAME(winograd_input)(const struct step *step, const struct memory *memory) {
  const int64_t component = step->rows * step->output_plane, length = step->segment_length;
  for (int64_t row = 0; row < step->rows; row++) {
    const int64_t channel = *AT(memory->tables + step->channels + row, 1);
    const float *plane = memory->workspace + step->input + channel * step->input_plane;
    float *to = memory->workspace + step->output + row * step->output_plane;
    for (int64_t tile = 0; tile < step->out_height; tile++, to += step->out_pitch * step->lanes) {
      const float *from[6];
      for (int64_t i = 0; i < 6; i++) {
        const int64_t y = 4 * tile + i - step->pad_y;
        from[i] = y < 0 || y >= step->height ? 0 : plane + y * step->pitch * step->lanes;
      }
      for (int64_t at = 0; at < length; at += VL) NAME(winograd_rows)(from, at, to + at, component);
    }
  }
}

TARGET static void NAME(winograd_output)(const struct step *step, const struct memory *memory) {
  const int64_t component = step->rows * step->input_plane, length = step->segment_length;
  const int64_t pitch = step->out_pitch * step->lanes;
  const float *clip = step->clip < 0 ? 0 : AT((const float *)memory->tables + step->clip, 2);
  for (int64_t row = 0; row < step->rows; row++) {
    const int64_t channel = *AT(memory->tables + step->channels + row, 1);
    const VEC bias = *AT((const float *)memory->tables + step->bias + row, 1) - (VEC){0};
    const float *from = memory->workspace + step->input + row * step->input_plane;
    float *to = memory->workspace + step->output + channel * step->output_plane;
    for (int64_t tile = 0; tile < step->height; tile++, from += step->pitch * step->lanes) {
      for (int64_t at = 0; at < length; at += VL) {
        VEC part[6], sum[4];
#pragma GCC unroll 6
        for (int i = 0; i < 6; i++) part[i] = NAME(load)(from + i * component + at);
        const VEC sum_1 = part[1] + part[2], difference_1 = part[1] - part[2];  // of the points 1 and -1
        const VEC sum_2 = part[3] + part[4], difference_2 = part[3] - part[4];  // of the points 2 and -2
        sum[0] = part[0] + sum_1 + sum_2;
        sum[1] = difference_1 + 2.0f * difference_2;
        sum[2] = sum_1 + 4.0f * sum_2;
        sum[3] = difference_1 + 8.0f * difference_2 + part[5];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
          VEC value = sum[i] + bias;
          if (step->relu) value = NAME(larger_of)((VEC){0}, value);
          if (clip) value = NAME(smaller_of)(clip[1] - (VEC){0}, NAME(larger_of)(clip[0] - (VEC){0}, value));
          if (4 * tile + i < step->out_height) NAME(store)(to + (4 * tile + i) * pitch + at, value);
        }
      }
    }
  }
}
