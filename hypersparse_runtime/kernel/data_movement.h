/* Steps without weights: phases for strides, pooling, input and output. */

typedef float NAME(eight) __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t NAME(eight_places) __attribute__((vector_size(32), aligned(4)));

typedef float NAME(four) __attribute__((vector_size(16), aligned(4), may_alias));
typedef int32_t NAME(four_places) __attribute__((vector_size(16), aligned(4)));

#if VL == 16
#define EVENS ((IVEC){0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30})
#elif VL == 8
#define EVENS ((IVEC){0, 2, 4, 6, 8, 10, 12, 14})
#else
#define EVENS ((IVEC){0, 2, 4, 6})
#endif

/* Every second column, from `odd` on, of one row of two vectors or of two rows of one vector, as
 * max(value + lazy[0], lazy[1]). */
INLINE VEC NAME(every_second)(const float *first, const float *second, const int odd, const float *lazy) {
  const VEC one = NAME(load)(first), two = NAME(load)(second);
  const VEC value = odd ? __builtin_shuffle(one, two, EVENS + 1) : __builtin_shuffle(one, two, EVENS);
  return lazy ? NAME(larger_of)(lazy[1] - (VEC){0}, value + lazy[0]) : value;
}

INLINE float NAME(with_lazy_bias)(float value, const float *lazy) {
  if (!lazy) return value;
  value += lazy[0];
  return value <= lazy[1] ? lazy[1] : value;
}

/* Row y of a phase whose first row is `first`. */
INLINE const float *NAME(phase_row)(const struct step *step, const float *from, int64_t first, int64_t y) {
  return from + row_at(first + y * step->stride_y, step->pitch, step->fold) * lanes_of(step);
}

/* Every second row and column of a plane of one image. */
INLINE void NAME(split_pairs)(const struct step *step, const float *from, int64_t first, const int odd, const float *lazy,
                              float *to, int64_t rows, int64_t count) {
  const int64_t stride = step->stride_y * step->pitch, pitch = step->out_pitch, fold = step->out_fold;
  const float *line = from + first * step->pitch;
  if (!step->fold && 2 * count == VL && pitch == count && rows % (fold ? 2 * fold : 2) == 0) {
    const int64_t next = (fold ? 1 : 2) * stride, beside = (fold ? fold : 1) * stride; /* the other row in the vector */
    for (int64_t i = 0; i < rows / 2; i++, line += next)
      NAME(store)(to + i * VL, NAME(every_second)(line, line + beside, odd, lazy));
    return;
  }
  if (!step->fold && count == VL) {
    for (int64_t y = 0; y < rows; y++, line += stride)
      NAME(store)(to + row_at(y, pitch, fold), NAME(every_second)(line, line + VL, odd, lazy));
    return;
  }
  for (int64_t y = 0; y < rows; y++) {
    float *line_to = to + row_at(y, pitch, fold);
    int64_t x = 0;
    line = NAME(phase_row)(step, from, first, y);
    for (; x + VL <= count; x += VL)
      NAME(store)(line_to + x, NAME(every_second)(line + 2 * x, line + 2 * x + VL, odd, lazy));
    for (; x < count; x++) *AT(line_to + x, 1) = NAME(with_lazy_bias)(*AT(line + 2 * x + odd, 1), lazy);
  }
}

/* The same for interleaved images or another stride. */
INLINE void NAME(split_any)(const struct step *step, const float *from, const int32_t *triple, const float *lazy, float *to,
                            int64_t rows, int64_t count) {
  const int64_t lanes = lanes_of(step), stride = step->stride_x * lanes;
  for (int64_t y = 0; y < rows; y++) {
    const float *line = NAME(phase_row)(step, from, triple[1], y) + triple[2] * lanes;
    float *line_to = to + row_at(y, step->out_pitch, step->out_fold) * lanes;
    for (int64_t x = 0; x < count; x++)
      for (int64_t lane = 0; lane < lanes; lane++)
        *AT(line_to + x * lanes + lane, 1) = NAME(with_lazy_bias)(*AT(line + x * stride + lane, 1), lazy);
  }
}

INLINE void NAME(split_plane)(const struct step *step, const float *from, const int32_t *triple, const float *lazy,
                              float *to) {
  const int64_t count = (step->width - triple[2] + step->stride_x - 1) / step->stride_x;
  const int64_t rows = (step->height - triple[1] + step->stride_y - 1) / step->stride_y;
  if (step->stride_x != 2 || lanes_of(step) > 1)
    NAME(split_any)(step, from, triple, lazy, to, rows, count);
  else if (triple[2])
    NAME(split_pairs)(step, from, triple[1], 1, lazy, to, rows, count);
  else
    NAME(split_pairs)(step, from, triple[1], 0, lazy, to, rows, count);
}

/* Copy every stride-th row and column of a channel to its own plane. Table: channel, first row, first column. */
TARGET static void NAME(split)(const struct step *step, const struct memory *memory) {
  const int32_t *triple = memory->tables + step->channels;
  for (int64_t row = 0; row < step->rows; row++, triple += 3) {
    const float *from = memory->workspace + step->input + AT(triple, 3)[0] * step->input_plane;
    const float *lazy = (const float *)memory->tables + step->lazy_bias + 2 * row;
    float *to = memory->workspace + step->output + row * step->output_plane;
    if (!HAS_LAZY_BIAS || step->lazy_bias < 0 || (AT(lazy, 2)[0] == 0.0f && lazy[1] == -__builtin_inff()))
      NAME(split_plane)(step, from, triple, 0, to);
    else
      NAME(split_plane)(step, from, triple, lazy, to);
  }
}

/* Repeat the middle rows of folded planes: those above row `fold` before the plane, those from it on behind the plane. */
TARGET static void NAME(repeat_rows)(const struct step *step, const struct memory *memory) {
  const int32_t *channels = memory->tables + step->channels;
  const int64_t fold = step->fold, vector = 2 * step->pitch, half = step->pitch;
  for (int64_t row = 0; row < step->rows; row++) {
    float *plane = memory->workspace + step->input + *AT(channels + row, 1) * step->input_plane;
    for (int64_t i = 0; i < step->segments; i++) {
      float *above = plane - (i + 1) * vector + half, *below = plane + (fold + i) * vector;
      *(NAME(eight) *)AT(above, 8) = *(const NAME(eight) *)AT(plane + (fold - 1 - i) * vector, 8);
      *(NAME(eight) *)AT(below, 8) = *(const NAME(eight) *)AT(plane + i * vector + half, 8);
    }
  }
}

/* Clear the padding between and around planes in reused memory. Table: first float and number of floats, whole vectors. */
TARGET static void NAME(clear)(const struct step *step, const struct memory *memory) {
  const int32_t *run = memory->tables + step->channels;
  for (int64_t row = 0; row < step->rows; row++, run += 2) {
    float *to = memory->workspace + step->output + AT(run, 2)[0];
    for (int64_t i = 0; i < run[1]; i += VL) NAME(store)(to + i, (VEC){0});
  }
}

INLINE float NAME(larger)(float a, float b) {
  return a > b || a != a ? a : b;
}

/* The maximum of two vectors; NaN if one is NaN. */
#define LARGER_OF(type, places, a, b) \
  ({ \
    const places first = ((a) > (b)) | ((a) != (a)); \
    (type)(((places)(a) & first) | ((places)(b) & ~first)); \
  })

INLINE int64_t NAME(pool_eights)(const float *one, const float *two, float *to, int64_t count) {
  const NAME(eight_places) even = {0, 2, 4, 6, 8, 10, 12, 14}, odd = {1, 3, 5, 7, 9, 11, 13, 15};
  int64_t x = 0;
  for (; x + 8 <= count; x += 8) {
    const NAME(eight) a = *(const NAME(eight) *)AT(one + 2 * x, 8), b = *(const NAME(eight) *)AT(two + 2 * x, 8);
    const NAME(eight) c = *(const NAME(eight) *)AT(one + 2 * x + 8, 8), d = *(const NAME(eight) *)AT(two + 2 * x + 8, 8);
    const NAME(eight) left = LARGER_OF(NAME(eight), NAME(eight_places), a, b);
    const NAME(eight) right = LARGER_OF(NAME(eight), NAME(eight_places), c, d);
    const NAME(eight) evens = __builtin_shuffle(left, right, even), odds = __builtin_shuffle(left, right, odd);
    *(NAME(eight) *)AT(to + x, 8) = LARGER_OF(NAME(eight), NAME(eight_places), evens, odds);
  }
  return x;
}

INLINE int64_t NAME(pool_fours)(const float *one, const float *two, float *to, int64_t count, int64_t x) {
  const NAME(four_places) even = {0, 2, 4, 6}, odd = {1, 3, 5, 7};
  for (; x + 4 <= count; x += 4) {
    const NAME(four) a = *(const NAME(four) *)AT(one + 2 * x, 4), b = *(const NAME(four) *)AT(two + 2 * x, 4);
    const NAME(four) c = *(const NAME(four) *)AT(one + 2 * x + 4, 4), d = *(const NAME(four) *)AT(two + 2 * x + 4, 4);
    const NAME(four) left = LARGER_OF(NAME(four), NAME(four_places), a, b);
    const NAME(four) right = LARGER_OF(NAME(four), NAME(four_places), c, d);
    const NAME(four) evens = __builtin_shuffle(left, right, even), odds = __builtin_shuffle(left, right, odd);
    *(NAME(four) *)AT(to + x, 4) = LARGER_OF(NAME(four), NAME(four_places), evens, odds);
  }
  return x;
}

TARGET static void NAME(pool_pairs)(const struct step *step, const float *from, float *to) {
  for (int64_t y = 0; y < step->out_height; y++) {
    const float *one = from + row_at(2 * y, step->pitch, step->fold);
    const float *two = from + row_at(2 * y + 1, step->pitch, step->fold);
    float *line = to + row_at(y, step->out_pitch, step->out_fold);
    int64_t x = NAME(pool_eights)(one, two, line, step->out_width);
    x = NAME(pool_fours)(one, two, line, step->out_width, x);
    for (; x < step->out_width; x++)
      *AT(line + x, 1) = NAME(larger)(NAME(larger)(AT(one + 2 * x, 2)[0], one[2 * x + 1]),
                                      NAME(larger)(AT(two + 2 * x, 2)[0], two[2 * x + 1]));
  }
}

#if VL == 16
INLINE VEC NAME(larger_or_nan)(VEC a, VEC b) {
  return (VEC)_mm512_mask_mov_ps(_mm512_max_ps(a, b), _mm512_cmp_ps_mask(a, a, _CMP_UNORD_Q), a);
}

/* Rows of 4 to 32 floats without padding: 64 consecutive floats become 16. Rows of one or two vectors are joined first. */
INLINE void NAME(pool_dense)(const float *from, float *to, int64_t count, IVEC top, IVEC bottom) {
  for (int64_t i = 0; i < count; i += VL, from += 4 * VL) {
    const VEC a = NAME(load)(from), b = NAME(load)(from + VL), c = NAME(load)(from + 2 * VL), d = NAME(load)(from + 3 * VL);
    const VEC first = NAME(larger_or_nan)(__builtin_shuffle(a, b, EVENS), __builtin_shuffle(a, b, EVENS + 1));
    const VEC second = NAME(larger_or_nan)(__builtin_shuffle(c, d, EVENS), __builtin_shuffle(c, d, EVENS + 1));
    NAME(store)(to + i, NAME(larger_or_nan)(__builtin_shuffle(first, second, top),
                                            __builtin_shuffle(first, second, bottom)));
  }
}

/* Vectors of a row and the row `below`. Those `beside` them complete a vector of the output; the next ones are `next` on. */
INLINE void NAME(pool_vectors)(const float *from, float *to, int64_t count, int64_t below, int64_t beside, int64_t next,
                               IVEC evens) {
  for (int64_t i = 0; i < count; i += VL, from += next) {
    const VEC left = NAME(larger_or_nan)(NAME(load)(from), NAME(load)(from + below));
    const VEC right = NAME(larger_or_nan)(NAME(load)(from + beside), NAME(load)(from + beside + below));
    NAME(store)(to + i, NAME(larger_or_nan)(__builtin_shuffle(left, right, evens),
                                            __builtin_shuffle(left, right, evens + 1)));
  }
}
#endif

TARGET static void NAME(pool_line)(const struct step *step, const float *from, float *line, int64_t y) {
  const int64_t lanes = lanes_of(step);
  for (int64_t i = 0; i < step->out_width * lanes; i++) *AT(line + i, 1) = -__builtin_inff();
  for (int64_t ky = 0; ky < step->kernel_y; ky++) {
    const int64_t row = y * step->stride_y - step->pad_y + ky;
    if (row < 0 || row >= step->height) continue;
    for (int64_t kx = 0; kx < step->kernel_x; kx++) {
      for (int64_t x = 0; x < step->out_width; x++) {
        const int64_t column = x * step->stride_x - step->pad_x + kx;
        if (column < 0 || column >= step->width) continue;
        const float *at = from + (row_at(row, step->pitch, step->fold) + column) * lanes;
        for (int64_t lane = 0; lane < lanes; lane++)
          line[x * lanes + lane] = NAME(larger)(*AT(line + x * lanes + lane, 1), *AT(at + lane, 1));
      }
    }
  }
}

TARGET static void NAME(max_pool)(const struct step *step, const struct memory *memory) {
  const int32_t *channels = memory->tables + step->channels;
  const int pairs = lanes_of(step) == 1 && step->kernel_y == 2 && step->kernel_x == 2 && step->stride_y == 2 &&
                    step->stride_x == 2 && step->pad_y == 0 && step->pad_x == 0;
#if VL == 16
  const int64_t half = step->out_width;
  const int dense = pairs && step->pitch == 2 * half && step->width == 2 * half && step->height == 2 * step->out_height &&
                    step->out_pitch == half && half <= VL && !(half & (half - 1)) && step->out_height * half % VL == 0 &&
                    (!step->fold || (step->height == VL / 2 && step->height == 2 * step->fold)) &&
                    (!step->out_fold || step->out_height == 2 * step->out_fold);
  const int by_rows = step->width >= VL || step->fold;
  const int64_t below = step->fold ? VL : step->width;
  const int64_t beside = step->out_fold ? 2 * step->out_fold * VL : 3 * VL - below;
  const IVEC evens = step->fold ? (IVEC){0, 2, 4, 6, 16, 18, 20, 22, 8, 10, 12, 14, 24, 26, 28, 30} : EVENS;
  IVEC top;
  for (int i = 0; i < VL; i++) top[i] = dense ? i / (int)half * 2 * (int)half + i % (int)half : 0;
#endif
  for (int64_t row = 0; row < step->rows; row++) {
    const float *from = memory->workspace + step->input + *AT(channels + row, 1) * step->input_plane;
    float *to = memory->workspace + step->output + *AT(channels + row, 1) * step->output_plane;
#if VL == 16
    if (dense) {
      if (by_rows)
        NAME(pool_vectors)(from, to, step->out_height * half, below, beside, step->out_fold ? 2 * VL : 4 * VL, evens);
      else
        NAME(pool_dense)(from, to, step->out_height * half, top, top + (int)half);
      continue;
    }
#endif
    if (pairs) {
      NAME(pool_pairs)(step, from, to);
    } else {
      for (int64_t y = 0; y < step->out_height; y++)
        NAME(pool_line)(step, from, to + row_at(y, step->out_pitch, step->out_fold) * lanes_of(step), y);
    }
  }
}

INLINE float NAME(column_sums)(const struct step *step, const float *from) {
  float total = 0.0f;
  int64_t x = 0;
  for (; x + 8 <= step->width; x += 8) {
    NAME(eight) sum = {0};
    for (int64_t y = 0; y < step->height; y++)
      sum += *(const NAME(eight) *)AT(from + row_at(y, step->pitch, step->fold) + x, 8);
    for (int i = 0; i < 8; i++) total += sum[i];
  }
  for (; x < step->width; x++) {
    float sum = 0.0f;
    for (int64_t y = 0; y < step->height; y++) sum += *AT(from + row_at(y, step->pitch, step->fold) + x, 1);
    total += sum;
  }
  return total;
}

/* Sums columns first, then rows of sums: the same order for one image and for many. */
TARGET static void NAME(mean)(const struct step *step, const struct memory *memory) {
  const int32_t *channels = memory->tables + step->channels;
  const int64_t lanes = lanes_of(step), pitch = step->pitch * lanes;
  const float scale = 1.0f / (float)(step->height * step->width);
  for (int64_t row = 0; row < step->rows; row++) {
    const float *from = memory->workspace + step->input + *AT(channels + row, 1) * step->input_plane;
    float *to = memory->workspace + step->output + *AT(channels + row, 1) * step->output_plane;
    for (int64_t lane = 0; lane < lanes; lane++) *AT(to + lane, 1) = 0.0f;
    if (lanes == 1) {
      to[0] = NAME(column_sums)(step, from);
    } else {
      for (int64_t x = 0; x < step->width * lanes; x += lanes) {
        float sum[MAX_LANES] = {0};
        for (int64_t y = 0; y < step->height; y++)
          for (int64_t lane = 0; lane < lanes; lane++) sum[lane] += *AT(from + y * pitch + x + lane, 1);
        for (int64_t lane = 0; lane < lanes; lane++) to[lane] += sum[lane];
      }
    }
    for (int64_t lane = 0; lane < lanes; lane++) to[lane] *= scale;
  }
}

/* Copy the caller's images into a value; lanes without an image are zero. */
TARGET static void NAME(pack)(const struct step *step, const struct memory *memory) {
  const int64_t lanes = lanes_of(step), height = step->out_height, width = step->out_width;
  const int32_t *channels = memory->tables + step->channels;
  for (int64_t row = 0; row < step->rows; row++) {
    float *plane = memory->workspace + step->output + *AT(channels + row, 1) * step->output_plane;
    for (int64_t lane = 0; lane < lanes; lane++) {
      const float *image = memory->images + lane * memory->image_size + channels[row] * height * width;
      for (int64_t y = 0; y < height; y++) {
        float *line = plane + row_at(y, step->out_pitch, step->out_fold) * lanes + lane;
        const int64_t at = y * width;
        if (lanes == 1)
          for (int64_t x = 0; x < width; x++) *AT(line + x, 1) = *AT(image + at + x, 1);
        else if (lane < memory->images_here)
          for (int64_t x = 0; x < width; x++) *AT(line + x * lanes, 1) = *AT(image + at + x, 1);
        else
          for (int64_t x = 0; x < width; x++) *AT(line + x * lanes, 1) = 0.0f;
      }
    }
  }
}

TARGET static void NAME(unpack)(const struct step *step, const struct memory *memory) {
  const int64_t lanes = lanes_of(step), height = step->height, width = step->width;
  for (int64_t lane = 0; lane < memory->images_here; lane++) {
    float *to = memory->outputs + lane * memory->output_size;
    for (int64_t row = 0; row < step->rows; row++) {
      const float *plane = memory->workspace + step->input + row * step->input_plane;
      for (int64_t y = 0; y < height; y++)
        for (int64_t x = 0; x < width; x++)
          *AT(to, 1) = *AT(plane + (row_at(y, step->pitch, step->fold) + x) * lanes + lane, 1), to++;
    }
  }
}

#undef LARGER_OF
#undef EVENS
