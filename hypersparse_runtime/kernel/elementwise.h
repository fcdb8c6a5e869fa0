/* Functions of elements and arithmetic with two values, over runs of floats.
 *
 * The exponential is a polynomial of degree 7 on [-ln 2 / 2, ln 2 / 2], with a relative error of about 1e-7. No function of a
 * C library is called: those differ, and there is none in a browser. */

INLINE VEC NAME(all)(float value) { return value - (VEC){0}; }

INLINE VEC NAME(chosen)(IVEC where, VEC yes, VEC no) { return (VEC)(((IVEC)yes & where) | ((IVEC)no & ~where)); }

SHARED VEC NAME(exp_of)(VEC x) {
  x = NAME(smaller_of)(NAME(all)(88.3f), NAME(larger_of)(NAME(all)(-87.3f), x));
  const VEC shifted = x * 1.44269504f + 12582912.0f; /* rounds to the nearest whole number */
  const IVEC power = (IVEC)shifted - 0x4B400000;
  const VEC whole = shifted - 12582912.0f;
  const VEC rest = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;
  VEC sum = rest * (1.0f / 5040) + 1.0f / 720;
  sum = sum * rest + 1.0f / 120;
  sum = sum * rest + 1.0f / 24;
  sum = sum * rest + 1.0f / 6;
  sum = sum * rest + 0.5f;
  sum = sum * rest + 1.0f;
  sum = sum * rest + 1.0f;
  return sum * (VEC)((power + 127) << 23);
}

/* Of positive numbers; of zero minus infinity, of negative ones NaN. */
SHARED VEC NAME(log_of)(VEC x) {
  const IVEC bits = (IVEC)x;
  IVEC power = ((bits >> 23) & 255) - 127;
  VEC part = (VEC)((bits & 0x007FFFFF) | 0x3F800000);
  const IVEC large = part > NAME(all)(1.41421356f);
  part = NAME(chosen)(large, part * 0.5f, part);
  power -= large; /* minus one where it is true */
  const VEC ratio = (part - 1.0f) / (part + 1.0f), square = ratio * ratio;
  VEC sum = square * (1.0f / 9) + 1.0f / 7;
  sum = sum * square + 0.2f;
  sum = sum * square + 1.0f / 3;
  sum = sum * square + 1.0f;
  const VEC found = __builtin_convertvector(power, VEC) * 0.693147181f + 2.0f * ratio * sum;
  const VEC low = NAME(chosen)(x == 0.0f, NAME(all)(-__builtin_inff()), NAME(all)(__builtin_nanf("")));
  return NAME(chosen)(x > 0.0f, NAME(chosen)(x < __builtin_inff(), found, x), low);
}

INLINE VEC NAME(magnitude)(VEC x) { return (VEC)((IVEC)x & 0x7FFFFFFF); }

INLINE VEC NAME(with_sign)(VEC x, VEC sign) { return (VEC)((IVEC)x | ((IVEC)sign & (int32_t)0x80000000)); }

SHARED VEC NAME(sigmoid_of)(VEC x) { return 1.0f / (1.0f + NAME(exp_of)(-x)); }

/* By its series where that is exact, else by the exponential. */
SHARED VEC NAME(tanh_of)(VEC x) {
  const VEC small = NAME(magnitude)(x), square = x * x;
  VEC series = square * -0.0218694885f + 0.0539682540f;
  series = series * square - 0.133333333f;
  series = series * square + 0.333333333f;
  series = x - x * square * series;
  const VEC rest = 1.0f - 2.0f / (NAME(exp_of)(2.0f * small) + 1.0f);
  return NAME(chosen)(small < 0.3f, series, NAME(with_sign)(rest, x));
}

/* Abramowitz and Stegun, 7.1.26: an absolute error of at most 1.5e-7; a series near zero. */
SHARED VEC NAME(erf_of)(VEC x) {
  const VEC size = NAME(magnitude)(x), t = 1.0f / (1.0f + 0.3275911f * size), square = x * x;
  VEC sum = t * 1.061405429f - 1.453152027f;
  sum = sum * t + 1.421413741f;
  sum = sum * t - 0.284496736f;
  sum = sum * t + 0.254829592f;
  const VEC far = NAME(with_sign)(1.0f - sum * t * NAME(exp_of)(-square), x);
  VEC near = square * 0.00462962963f - 0.0238095238f;
  near = near * square + 0.1f;
  near = near * square - 0.333333333f;
  near = 1.12837917f * (x + x * square * near);
  return NAME(chosen)(size < 0.3f, near, far);
}

INLINE VEC NAME(softplus_of)(VEC x) {
  return NAME(larger_of)(NAME(all)(0.0f), x) + NAME(log_of)(1.0f + NAME(exp_of)(-NAME(magnitude)(x)));
}

INLINE VEC NAME(root_of)(VEC x) {
#if VL == 16
  return (VEC)_mm512_sqrt_ps(x);
#elif VL == 8
  return (VEC)_mm256_sqrt_ps(x);
#elif defined(__x86_64__)
  return (VEC)_mm_sqrt_ps(x);
#else
  for (int i = 0; i < VL; i++) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}

INLINE VEC NAME(clipped_sixth)(VEC x) {
  return NAME(smaller_of)(NAME(all)(6.0f), NAME(larger_of)(NAME(all)(0.0f), x + 3.0f)) * (1.0f / 6);
}

/* exp(x) - 1 for numbers that are not positive: by its series near zero. */
INLINE VEC NAME(below_one)(VEC x) {
  VEC near = x * (1.0f / 720) + 1.0f / 120;
  near = near * x + 1.0f / 24;
  near = near * x + 1.0f / 6;
  near = near * x + 0.5f;
  near = near * x * x + x;
  return NAME(chosen)(x > -0.4f, near, NAME(exp_of)(x) - 1.0f);
}

INLINE VEC NAME(elu_of)(VEC x, float scale) {
  return NAME(chosen)(x > 0.0f, x, scale * NAME(below_one)(NAME(smaller_of)(NAME(all)(0.0f), x)));
}

INLINE VEC NAME(celu_of)(VEC x, float scale) {
  return NAME(chosen)(x > 0.0f, x, scale * NAME(below_one)(NAME(smaller_of)(NAME(all)(0.0f), x) / scale));
}

SHARED VEC NAME(function_of)(const enum function function, VEC x, float parameter) {
  switch (function) { FUNCTIONS(CASE) }
  return x;
}

/* The first `count` floats of a vector. */
INLINE VEC NAME(load_part)(const float *from, int64_t count) {
  VEC value = {0};
  if (count >= VL) return NAME(load)(from);
  __builtin_memcpy(&value, AT(from, count), (size_t)count * sizeof *from);
  return value;
}

INLINE void NAME(store_part)(float *to, VEC value, int64_t count) {
  if (count >= VL)
    NAME(store)(to, value);
  else
    __builtin_memcpy(AT(to, count), &value, (size_t)count * sizeof *to);
}

SHARED void NAME(apply)(const enum function function, float *to, const float *from, int64_t count, float parameter) {
  int64_t i = 0;
  for (; i + VL <= count; i += VL) NAME(store)(to + i, NAME(function_of)(function, NAME(load)(from + i), parameter));
  if (i < count)
    NAME(store_part)(to + i, NAME(function_of)(function, NAME(load_part)(from + i, count - i), parameter), count - i);
}

/* Table: runs of where to, where from and how many. */
TARGET static void NAME(elementwise)(const struct step *step, const struct memory *memory) {
  const int32_t *run = memory->tables + step->channels;
  const float parameter = *AT((const float *)memory->tables + step->bias, 1);
  for (int64_t row = 0; row < step->rows; row++, run += 3) {
    float *to = memory->workspace + step->output + AT(run, 3)[0] * lanes_of(step);
    const float *from = memory->workspace + step->input + run[1] * lanes_of(step);
    const int64_t count = run[2] * lanes_of(step);
#ifdef __wasm__
    NAME(apply)((enum function)step->kernel_y, to, from, count, parameter);
#else
    switch (step->kernel_y) {
#define RUN(name, computed) case name: NAME(apply)(name, to, from, count, parameter); break;
      FUNCTIONS(RUN)
#undef RUN
    }
#endif
  }
}

INLINE VEC NAME(joined)(const enum operator operator, VEC a, VEC b) {
  switch (operator) { OPERATORS(CASE) }
  return a;
}

/* Where the operands of a run begin, and how far apart their elements are; lanes of constants are one. */
struct NAME(pair) {
  float *to;
  const float *first, *second;
  int64_t count, first_step, second_step, lanes, second_lanes;
};

SHARED void NAME(join_runs)(const enum operator operator, const struct NAME(pair) * run) {
  const int whole = run->first_step == 1 && run->lanes == run->second_lanes;
  const int64_t count = run->count * run->lanes;
  int64_t i = 0;
  if (whole && run->second_step == 1) {
    for (; i + VL <= count; i += VL)
      NAME(store)(run->to + i, NAME(joined)(operator, NAME(load)(run->first + i), NAME(load)(run->second + i)));
  } else if (whole && run->second_step == 0 && run->lanes == 1) {
    const VEC second = NAME(all)(*AT(run->second, 1));
    for (; i + VL <= count; i += VL) NAME(store)(run->to + i, NAME(joined)(operator, NAME(load)(run->first + i), second));
  }
  for (int64_t place = i; place < count; place++) {
    const int64_t element = place / run->lanes, lane = place % run->lanes;
    const int64_t one = element * run->first_step * run->lanes + lane;
    const int64_t two = element * run->second_step * run->second_lanes + (run->second_lanes > 1 ? lane : 0);
    const VEC made = NAME(joined)(operator, NAME(all)(*AT(run->first + one, 1)), NAME(all)(*AT(run->second + two, 1)));
    *AT(run->to + place, 1) = made[0];
  }
}

/* Table: runs of where to, where both operands are, and how many. The second one is a value or a table of constants. */
TARGET static void NAME(arithmetic)(const struct step *step, const struct memory *memory) {
  const int32_t *run = memory->tables + step->channels;
  const int64_t lanes = lanes_of(step), others = step->residual >= 0 ? lanes : 1;
  const float *second = step->residual >= 0 ? memory->workspace + step->residual
                                            : (const float *)memory->tables + step->plane;
  for (int64_t row = 0; row < step->rows; row++, run += 4) {
    const struct NAME(pair) pair = {memory->workspace + step->output + AT(run, 4)[0] * lanes,
                                    memory->workspace + step->input + run[1] * lanes,
                                    second + run[2] * others,
                                    run[3],
                                    step->stride_y,
                                    step->stride_x,
                                    lanes,
                                    others};
#ifdef __wasm__
    NAME(join_runs)((enum operator)step->kernel_y, &pair);
#else
    switch (step->kernel_y) {
#define RUN(name, computed) case name: NAME(join_runs)(name, &pair); break;
      OPERATORS(RUN)
#undef RUN
    }
#endif
  }
}

/* Copy runs. Table: where to, where from and how many; from a value or a table of constants. */
TARGET static void NAME(copy)(const struct step *step, const struct memory *memory) {
  const int32_t *run = memory->tables + step->channels;
  const int64_t lanes = lanes_of(step), others = step->plane < 0 ? lanes : 1, stride = step->stride_x;
  const float *source = step->plane < 0 ? memory->workspace + step->input : (const float *)memory->tables + step->plane;
  for (int64_t row = 0; row < step->rows; row++, run += 3) {
    float *to = memory->workspace + step->output + AT(run, 3)[0] * lanes;
    const float *from = source + run[1] * others;
    const int64_t count = run[2];
    if (stride == 1 && lanes == others) {
      __builtin_memmove(AT(to, count * lanes), AT(from, count * lanes), (size_t)(count * lanes) * sizeof *to);
    } else if (lanes == 1) {
      for (int64_t i = 0; i < count; i++) *AT(to + i, 1) = *AT(from + i * stride, 1);
    } else {
      for (int64_t i = 0; i < count; i++)
        for (int64_t lane = 0; lane < lanes; lane++)
          *AT(to + i * lanes + lane, 1) = *AT(from + i * stride * others + (others > 1 ? lane : 0), 1);
    }
  }
}
