/* Softmax and log-softmax, the last step of a network: the same code and the same bits for every instruction set.
 *
 * Computed in double precision with an own exponential and logarithm, because those of C libraries differ. Both have a
 * relative error of about 1e-16. */

static double two_to(int64_t power) {
  const int64_t bits = (power + 1023) << 52;
  double value;
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}

/* For a number that is not positive, or NaN. */
static double exponential(double x) {
  if (x != x) return x;
  if (x < -200.0) return 0.0; /* 1e-87: negligible beside the largest term, which is 1, and 0 as a float */
  const int64_t power = (int64_t)(x * 1.4426950408889634 - 0.5); /* truncates, so this rounds to the nearest */
  const double rest = (x - (double)power * 0.6931471803691238) - (double)power * 1.9082149292705877e-10;
  double sum = 1.0;
  for (int term = 13; term > 0; term--) sum = 1.0 + sum * rest / term;
  return sum * two_to(power);
}

/* For a number of at least 1, or NaN. */
static double logarithm(double x) {
  if (x != x) return x;
  int64_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  int64_t power = (bits >> 52) - 1023;
  double rest = x * two_to(-power);
  if (rest > 1.4142135623730951) rest *= 0.5, power++;
  const double ratio = (rest - 1.0) / (rest + 1.0), square = ratio * ratio;
  double sum = 0.0;
  for (int term = 21; term > 0; term -= 2) sum = sum * square + 1.0 / term;
  return 2.0 * ratio * sum + (double)power * 0.6931471805599453;
}

static void softmax_of(const struct step *step, const struct memory *memory, int logarithmic) {
  for (int64_t lane = 0; lane < step->lanes; lane++) {
    const float *from = memory->workspace + step->input + lane;
    float *to = memory->workspace + step->output + lane;
    double most = *AT(from, 1), sum = 0.0;
    for (int64_t row = 1; row < step->rows; row++)
      if (*AT(from + row * step->input_plane, 1) > most) most = from[row * step->input_plane];
    for (int64_t row = 0; row < step->rows; row++) {
      const double value = exponential(from[row * step->input_plane] - most);
      *AT(to + row * step->output_plane, 1) = (float)value;
      sum += value;
    }
    const double less = logarithmic ? most + logarithm(sum) : 0.0, scale = 1.0 / sum;
    for (int64_t row = 0; row < step->rows; row++) {
      float *at = to + row * step->output_plane;
      *at = logarithmic ? (float)(from[row * step->input_plane] - less) : (float)(*at * scale);
    }
  }
}

static void softmax(const struct step *step, const struct memory *memory) { softmax_of(step, memory, 0); }

static void log_softmax(const struct step *step, const struct memory *memory) { softmax_of(step, memory, 1); }
