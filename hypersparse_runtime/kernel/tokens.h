/* Steps of Transformers and other networks that compute more than sums over nonzero weights: norms, softmax, reductions,
 * products of two values, embeddings, resizing, LSTM and GRU.
 *
 * Features are channels and tokens positions. Norms and softmax over features therefore add whole vectors of tokens. */

/* Vectors of positions that are worked on together. */
#ifdef __wasm__
#define BLOCK 1
#else
#define BLOCK 4
#endif

/* Some planes at the same positions: `at` floats from the start of each, `count` of them if they are less than a vector. */
struct NAME(planes) {
  const float *from;
  float *to;
  const int32_t *mask; /* from the same position on, or NULL */
  int64_t channels, from_plane, to_plane, at, count;
  int lanes, lane_shift;
};

INLINE VEC NAME(load_plane)(const struct NAME(planes) * job, int64_t channel, int t) {
  return NAME(load_part)(job->from + channel * job->from_plane + t * VL, job->count);
}

/* Store positions of a plane; what pads them becomes zero. */
INLINE void NAME(store_plane)(const struct NAME(planes) * job, int64_t channel, int t, VEC value) {
  if (job->mask) {
    if (job->lanes == 1)
      value = (VEC)((IVEC)value & *(const IVEC *)AT(job->mask + t * VL, VL));
    else
      value = (VEC)((IVEC)value & *AT(job->mask + ((job->at + t * VL) >> job->lane_shift), 1));
  }
  NAME(store_part)(job->to + channel * job->to_plane + t * VL, value, job->count);
}

/* (x - mean) / deviation * gain + shift over channels, at each position. */
INLINE void NAME(norm_block)(const struct NAME(planes) * job, const int vectors, const float *pairs, float epsilon) {
  const float share = 1.0f / (float)job->channels;
  VEC mean[BLOCK], scale[BLOCK];
#pragma GCC unroll 4
  for (int t = 0; t < vectors; t++) mean[t] = scale[t] = (VEC){0};
  for (int64_t c = 0; c < job->channels; c++)
#pragma GCC unroll 4
    for (int t = 0; t < vectors; t++) mean[t] += NAME(load_plane)(job, c, t);
#pragma GCC unroll 4
  for (int t = 0; t < vectors; t++) mean[t] *= share;
  for (int64_t c = 0; c < job->channels; c++) {
#pragma GCC unroll 4
    for (int t = 0; t < vectors; t++) {
      const VEC less = NAME(load_plane)(job, c, t) - mean[t];
      scale[t] += less * less;
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < vectors; t++) scale[t] = 1.0f / NAME(root_of)(scale[t] * share + epsilon);
  for (int64_t c = 0; c < job->channels; c++) {
    const float gain = AT(pairs + 2 * c, 2)[0], shift = pairs[2 * c + 1];
#pragma GCC unroll 4
    for (int t = 0; t < vectors; t++)
      NAME(store_plane)(job, c, t, (NAME(load_plane)(job, c, t) - mean[t]) * scale[t] * gain + shift);
  }
}

INLINE void NAME(softmax_block)(const struct NAME(planes) * job, const int vectors) {
  VEC most[BLOCK], sum[BLOCK];
#pragma GCC unroll 4
  for (int t = 0; t < vectors; t++) most[t] = NAME(load_plane)(job, 0, t), sum[t] = (VEC){0};
  for (int64_t c = 1; c < job->channels; c++)
#pragma GCC unroll 4
    for (int t = 0; t < vectors; t++) most[t] = NAME(larger_of)(most[t], NAME(load_plane)(job, c, t));
  for (int64_t c = 0; c < job->channels; c++) {
#pragma GCC unroll 4
    for (int t = 0; t < vectors; t++) {
      const VEC power = NAME(exp_of)(NAME(load_plane)(job, c, t) - most[t]);
      sum[t] += power;
      NAME(store_plane)(job, c, t, power);
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < vectors; t++) sum[t] = 1.0f / sum[t];
  for (int64_t c = 0; c < job->channels; c++) {
#pragma GCC unroll 4
    for (int t = 0; t < vectors; t++) {
      float *at = job->to + c * job->to_plane + t * VL;
      NAME(store_part)(at, NAME(load_part)(at, job->count) * sum[t], job->count);
    }
  }
}

INLINE void NAME(reduce_block)(const struct NAME(planes) * job, const int vectors, int64_t function) {
  const float share = function == 0 ? 1.0f / (float)job->channels : 1.0f;
  VEC made[BLOCK];
#pragma GCC unroll 4
  for (int t = 0; t < vectors; t++) made[t] = NAME(load_plane)(job, 0, t);
  for (int64_t c = 1; c < job->channels; c++) {
#pragma GCC unroll 4
    for (int t = 0; t < vectors; t++) {
      const VEC next = NAME(load_plane)(job, c, t);
      if (function < 2)
        made[t] += next;
      else
        made[t] = function == 2 ? NAME(joined)(MAXIMUM, made[t], next) : NAME(joined)(MINIMUM, made[t], next);
    }
  }
#pragma GCC unroll 4
  for (int t = 0; t < vectors; t++) NAME(store_plane)(job, 0, t, made[t] * share);
}

enum NAME(over_planes) { NAME(NORM), NAME(SHARES), NAME(REDUCTION) };

INLINE void NAME(block)(const enum NAME(over_planes) kind, const struct step *step, const struct memory *memory,
                        const struct NAME(planes) * job, const int vectors) {
  const float *tables = (const float *)memory->tables;
  if (kind == NAME(NORM))
    NAME(norm_block)(job, vectors, tables + step->bias, *AT(tables + step->clip, 1));
  else if (kind == NAME(SHARES))
    NAME(softmax_block)(job, vectors);
  else
    NAME(reduce_block)(job, vectors, step->kernel_y);
}

/* Each group of channels at all positions of a plane, in one run over what pads them too. */
INLINE void NAME(over_groups)(const enum NAME(over_planes) kind, const struct step *step, const struct memory *memory) {
  const int64_t whole = step->segment_length * lanes_of(step);
  struct NAME(planes) job = {.channels = step->groups, .from_plane = step->input_plane, .to_plane = step->output_plane,
                             .lanes = (int)lanes_of(step), .lane_shift = (int)step->lane_shift};
  for (int64_t row = 0; row < step->rows; row += step->groups) {
    const int64_t made = kind == NAME(REDUCTION) ? row / step->groups : row;
    for (job.at = 0; job.at < whole;) {
      const int64_t left = whole - job.at;
      job.from = memory->workspace + step->input + row * step->input_plane + job.at;
      job.to = memory->workspace + step->output + made * step->output_plane + job.at;
      job.mask = step->mask < 0 ? 0 : memory->tables + step->mask + (lanes_of(step) == 1 ? job.at : 0);
      if (left >= BLOCK * VL) {
        job.count = VL;
        NAME(block)(kind, step, memory, &job, BLOCK);
        job.at += BLOCK * VL;
      } else {
        job.count = left < VL ? left : VL;
        NAME(block)(kind, step, memory, &job, 1);
        job.at += VL;
      }
    }
  }
}

TARGET static void NAME(layer_norm)(const struct step *step, const struct memory *memory) {
  NAME(over_groups)(NAME(NORM), step, memory);
}

TARGET static void NAME(softmax_planes)(const struct step *step, const struct memory *memory) {
  NAME(over_groups)(NAME(SHARES), step, memory);
}

TARGET static void NAME(reduce)(const struct step *step, const struct memory *memory) {
  NAME(over_groups)(NAME(REDUCTION), step, memory);
}

/* The sum over the rows of a plane of one image, or with a mean the sum of squared distances from it. */
INLINE double NAME(sum_of)(const struct step *step, const float *from, double mean, int squares) {
  double sum = 0.0;
  for (int64_t y = 0; y < step->height; y++) {
    const float *line = from + row_at(y, step->pitch, step->fold) * lanes_of(step);
    for (int64_t x = 0; x < step->width; x++) {
      const double value = *AT(line + x * lanes_of(step), 1) - mean;
      sum += squares ? value * value : value;
    }
  }
  return sum;
}

/* Norms over all positions of a group of channels. */
TARGET static void NAME(group_norm)(const struct step *step, const struct memory *memory) {
  const float *pairs = (const float *)memory->tables + step->bias, *epsilon = (const float *)memory->tables + step->clip;
  const double share = 1.0 / (double)(step->groups * step->height * step->width);
  for (int64_t lane = 0; lane < lanes_of(step); lane++) {
    for (int64_t first = 0; first < step->rows; first += step->groups) {
      const float *from = memory->workspace + step->input + first * step->input_plane + lane;
      double mean = 0.0, spread = 0.0;
      for (int64_t c = 0; c < step->groups; c++) mean += NAME(sum_of)(step, from + c * step->input_plane, 0.0, 0);
      mean *= share;
      for (int64_t c = 0; c < step->groups; c++) spread += NAME(sum_of)(step, from + c * step->input_plane, mean, 1);
      const VEC root = NAME(root_of)(NAME(all)((float)(spread * share) + *AT(epsilon, 1)));
      for (int64_t c = 0; c < step->groups; c++) {
        const float gain = AT(pairs + 2 * (first + c), 2)[0] / root[0], shift = pairs[2 * (first + c) + 1];
        float *to = memory->workspace + step->output + (first + c) * step->output_plane + lane;
        for (int64_t y = 0; y < step->height; y++) {
          const int64_t line = row_at(y, step->pitch, step->fold) * lanes_of(step);
          for (int64_t x = 0; x < step->width * lanes_of(step); x += lanes_of(step))
            *AT(to + line + x, 1) = (*AT(from + c * step->input_plane + line + x, 1) - (float)mean) * gain + shift;
        }
      }
    }
  }
}

/* A factor of each output row for each term, and the vectors of terms that they multiply. */
struct NAME(product) {
  const float *factors, *terms;
  float *to;
  int64_t row_step, term_step, terms_step, to_plane, count;
  int64_t left; /* floats of the last vector */
  float scale;
};

/* Factors of a row stay in one register while vectors of all rows are added up. */
INLINE void NAME(product_tile)(const struct NAME(product) * job, const int rows, const int vectors) {
  VEC sum[MATMUL_ROWS][MATMUL_VECTORS];
#pragma GCC unroll 32
  for (int r = 0; r < rows; r++)
#pragma GCC unroll 32
    for (int t = 0; t < vectors; t++) sum[r][t] = (VEC){0};
  const float *factors = job->factors, *terms = job->terms;
  for (int64_t k = 0; k < job->count; k++, factors += job->term_step, terms += job->terms_step) {
    VEC term[MATMUL_VECTORS];
#pragma GCC unroll 32
    for (int t = 0; t < vectors; t++) term[t] = NAME(load)(terms + t * VL);
#pragma GCC unroll 32
    for (int r = 0; r < rows; r++) {
      const VEC factor = NAME(all)(*AT(factors + r * job->row_step, 1));
#pragma GCC unroll 32
      for (int t = 0; t < vectors; t++) sum[r][t] += factor * term[t];
    }
  }
#pragma GCC unroll 32
  for (int r = 0; r < rows; r++) {
#pragma GCC unroll 32
    for (int t = 0; t < vectors; t++) {
      float *to = job->to + r * job->to_plane + t * VL;
      if (t + 1 < vectors)
        NAME(store)(to, sum[r][t] * job->scale);
      else
        NAME(store_part)(to, sum[r][t] * job->scale, job->left);
    }
  }
}

typedef void (*NAME(run_product))(const struct NAME(product) *);
#define PRODUCT(rows, vectors) \
  TARGET static __attribute__((noinline)) void NAME(product_##rows##_##vectors)(const struct NAME(product) * job) { \
    NAME(product_tile)(job, rows, vectors); \
  }
#define PRODUCTS(vectors) PRODUCT(1, vectors) PRODUCT(2, vectors) PRODUCT(3, vectors) PRODUCT(4, vectors)
#define PRODUCT_ROW(vectors) \
  {NAME(product_1_##vectors), NAME(product_2_##vectors), NAME(product_3_##vectors), NAME(product_4_##vectors)}
PRODUCTS(1) PRODUCTS(2)
#if MATMUL_VECTORS > 2
PRODUCTS(3)
#endif
#if MATMUL_VECTORS == 6
PRODUCTS(4) PRODUCTS(5) PRODUCTS(6)
#endif
static const NAME(run_product) NAME(products)[MATMUL_VECTORS][MATMUL_ROWS] = {
    PRODUCT_ROW(1), PRODUCT_ROW(2),
#if MATMUL_VECTORS > 2
    PRODUCT_ROW(3),
#endif
#if MATMUL_VECTORS == 6
    PRODUCT_ROW(4), PRODUCT_ROW(5), PRODUCT_ROW(6),
#endif
};

/* Products of two values, in batches. Table: where the factors and the vectors of each batch begin. */
TARGET static void NAME(matmul)(const struct step *step, const struct memory *memory) {
  const int64_t vectors = (step->segment_length + VL - 1) / VL;
  const int64_t tiles = (vectors + MATMUL_VECTORS - 1) / MATMUL_VECTORS, tile = (vectors + tiles - 1) / tiles;
  const int32_t *batch = memory->tables + step->channels;
  struct NAME(product) job = {.row_step = step->stride_y, .term_step = step->stride_x, .count = step->groups,
                              .terms_step = step->segment_stride, .to_plane = step->output_plane,
                              .scale = *AT((const float *)memory->tables + step->bias, 1)};
  for (int64_t b = 0; b < step->segments; b++, batch += 2) {
    for (int64_t t = 0; t < vectors; t += tile) {
      const int64_t count = vectors - t < tile ? vectors - t : tile, end = (t + count) * VL;
      job.left = end > step->segment_length ? VL - (end - step->segment_length) : VL;
      job.terms = memory->workspace + step->residual + AT(batch, 2)[1] + t * VL;
      for (int64_t row = 0; row < step->rows; row += MATMUL_ROWS) {
        const int64_t rows = step->rows - row < MATMUL_ROWS ? step->rows - row : MATMUL_ROWS;
        job.factors = memory->workspace + step->input + batch[0] + row * step->stride_y;
        job.to = memory->workspace + step->output + (b * step->rows + row) * step->output_plane + t * VL;
        NAME(products)[count - 1][rows - 1](&job);
      }
    }
  }
}

/* Rows of a table, turned: features are channels. A number that is in no row takes the first or the last. */
TARGET static void NAME(embedding)(const struct step *step, const struct memory *memory) {
  const float *weights = (const float *)memory->tables + step->plane, last = (float)(step->groups - 1);
  for (int64_t i = 0; i < step->segment_length; i++) {
    const float id = *AT(memory->workspace + step->input + *AT(memory->tables + step->channels + i, 1), 1);
    const int64_t row = id > 0.0f ? (int64_t)(id < last ? id : last) : 0;
    for (int64_t c = 0; c < step->rows; c++)
      *AT(memory->workspace + step->output + c * step->output_plane + i, 1) = *AT(weights + row * step->rows + c, 1);
  }
}

/* Sums over positions of a plane with the same weights for each channel. */
TARGET static void NAME(resample)(const struct step *step, const struct memory *memory) {
  const int32_t *starts = memory->tables + step->starts, *places = memory->tables + step->channels;
  const struct entry *entries = (const struct entry *)(memory->tables + step->entries);
  for (int64_t row = 0; row < step->rows; row++) {
    const float *from = memory->workspace + step->input + row * step->input_plane;
    float *to = memory->workspace + step->output + row * step->output_plane;
    for (int64_t i = 0; i < step->segment_length; i++) {
      for (int64_t lane = 0; lane < lanes_of(step); lane++) {
        float sum = 0.0f;
        for (int64_t k = AT(starts + i, 2)[0]; k < starts[i + 1]; k++)
          sum = FUSED(AT(entries + k, 1)->weight, *AT(from + entries[k].offset * lanes_of(step) + lane, 1), sum);
        *AT(to + *AT(places + i, 1) * lanes_of(step) + lane, 1) = sum;
      }
    }
  }
}

/* The sum of a gate's row over the hidden state; none of the first position. */
INLINE float NAME(hidden_sum)(const struct step *step, const struct memory *memory, int64_t row, const float *hidden) {
  const int32_t *starts = AT(memory->tables + step->starts + row, 2);
  const struct entry *entry = (const struct entry *)(memory->tables + step->entries);
  float sum = 0.0f;
  if (!hidden) return sum;
  for (int32_t k = starts[0]; k < starts[1]; k++)
    sum = FUSED(AT(entry + k, 1)->weight, *AT(hidden + entry[k].offset, 1), sum);
  return sum;
}

/* LSTM and GRU. The input holds what the gates get from the sequence; an LSTM keeps its cells over its forget gates. */
SHARED void NAME(recurrent)(const struct step *step, const struct memory *memory, const int lstm) {
  const int64_t size = step->rows, length = step->segment_length, plane = step->input_plane;
  const float *bias = (const float *)memory->tables + step->bias;
  for (int64_t number = 0; number < length; number++) {
    const int64_t time = step->stride_x ? length - 1 - number : number, before = step->stride_x ? time + 1 : time - 1;
    float *gates = memory->workspace + step->input, *out = memory->workspace + step->output;
    const float *hidden = number ? out + before : 0;
    for (int64_t unit = 0; unit < size; unit += VL) {
      const int64_t units = size - unit < VL ? size - unit : VL;
      VEC gate[4], rest = {0}, old = {0};
      for (int64_t g = 0; g < step->groups; g++) {
        gate[g] = (VEC){0};
        for (int64_t i = 0; i < units; i++) {
          const int64_t row = g * size + unit + i;
          const float sum = NAME(hidden_sum)(step, memory, row, hidden), own = *AT(gates + row * plane + time, 1);
          gate[g][i] = !lstm && g == 2 ? own : own + sum;
          if (!lstm && g == 2) rest[i] = sum + *AT(bias + unit + i, 1);
        }
      }
      for (int64_t i = 0; i < units && number; i++)
        old[i] = lstm ? *AT(gates + (size + unit + i) * plane + before, 1)
                      : *AT(out + (unit + i) * step->output_plane + before, 1);
      VEC made;
      if (lstm) {
        const VEC cell = NAME(sigmoid_of)(gate[1]) * old + NAME(sigmoid_of)(gate[0]) * NAME(tanh_of)(gate[2]);
        for (int64_t i = 0; i < units; i++) *AT(gates + (size + unit + i) * plane + time, 1) = cell[i];
        made = NAME(sigmoid_of)(gate[3]) * NAME(tanh_of)(cell);
      } else {
        const VEC update = NAME(sigmoid_of)(gate[1]), fresh = NAME(tanh_of)(gate[2] + NAME(sigmoid_of)(gate[0]) * rest);
        made = fresh + update * (old - fresh);
      }
      for (int64_t i = 0; i < units; i++) *AT(out + (unit + i) * step->output_plane + time, 1) = made[i];
    }
  }
}

TARGET static void NAME(lstm)(const struct step *step, const struct memory *memory) {
  NAME(recurrent)(step, memory, 1);
}

TARGET static void NAME(gru)(const struct step *step, const struct memory *memory) { NAME(recurrent)(step, memory, 0); }

#undef BLOCK
#undef PRODUCT
#undef PRODUCTS
#undef PRODUCT_ROW
