/* Sparse networks on a CPU: every step of a program of tables, for each instruction set that is built in.
 *
 * Built by library.py with any C compiler of the GCC kind; nothing but the C library is needed. Functions are compiled for
 * their instruction set by attribute and chosen at run time, so one file serves every CPU of a kind. */
#define _POSIX_C_SOURCE 199309L
#include "kernel.h"

#include <time.h>
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define MOST_LANES 64

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

#ifdef __x86_64__
#define HOLD(vector) __asm__ volatile("" : "+v"(vector)) /* keeps the compiler from folding the loop away */
#else
#define HOLD(vector) __asm__ volatile("" : "+w"(vector))
#endif

#include "softmax.h"

/* Level 0: what every CPU of the kind has, SSE2 on x86-64 and NEON on 64-bit ARM. */
#define NAME(word) word##_plain
#define TARGET
#define VL 4
#ifdef __aarch64__
#define MOST_ONE 14
#define MOST_TWO 8
#define MOST_FOUR 4
#define MOST_DIRECT 8
#define FUSED(a, b, c) __builtin_fmaf(a, b, c)
#else
#define MOST_ONE 7
#define MOST_TWO 4
#define MOST_FOUR 2
#define MOST_DIRECT 8
#define FUSED(a, b, c) ((a) * (b) + (c))
#endif
#include "dispatch.h"
#undef FUSED
#define FUSED(a, b, c) __builtin_fmaf(a, b, c) /* a loop the compiler makes vectors of would round twice */
#undef NAME
#undef TARGET
#undef VL
#undef MOST_ONE
#undef MOST_TWO
#undef MOST_FOUR
#undef MOST_DIRECT

#ifdef __x86_64__
#define NAME(word) word##_avx2
#define LARGER _mm256_max_ps
#define SMALLER _mm256_min_ps
#define TARGET __attribute__((target("avx2,fma")))
#define VL 8
#define MOST_ONE 7
#define MOST_TWO 4
#define MOST_FOUR 2
#define MOST_DIRECT 8
#include "dispatch.h"
#undef NAME
#undef LARGER
#undef SMALLER
#undef TARGET
#undef VL
#undef MOST_ONE
#undef MOST_TWO
#undef MOST_FOUR
#undef MOST_DIRECT

#define NAME(word) word##_avx512
#define LARGER _mm512_max_ps
#define SMALLER _mm512_min_ps
#define ADD_INSIDE(sum, weight, value, side) ((VEC)_mm512_mask3_fmadd_ps(weight, value, sum, side))
#define TARGET __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma,prefer-vector-width=512")))
#define VL 16
#define MOST_ONE 14
#define MOST_TWO 8
#define MOST_FOUR 4
#define MOST_DIRECT 24
#include "dispatch.h"
#undef NAME
#undef LARGER
#undef SMALLER
#undef ADD_INSIDE
#undef TARGET
#undef VL
#undef MOST_ONE
#undef MOST_TWO
#undef MOST_FOUR
#undef MOST_DIRECT

static const run_step *const levels[] = {steps_plain, steps_avx2, steps_avx512};
#else
static const run_step *const levels[] = {steps_plain};
#endif

int64_t hs_step_size(void) { return (int64_t)(sizeof(struct step) / sizeof(int64_t)); }

/* The number of levels this CPU can run: 1 plain, 2 with AVX2, 3 with AVX-512. */
int64_t hs_levels(void) {
#ifdef __x86_64__
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 1;
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512bw"))
    return 3;
  return 2;
#else
  return 1;
#endif
}

#ifdef HYPERSPARSE_CHECKED
/* What the next runs of this process may touch: addresses and bytes of tables, workspace, images and outputs. */
void hs_check(const char *const *parts, const int64_t *bytes) {
  for (int i = 0; i < 4; i++) ranges[i] = (struct range){parts[i], parts[i] + bytes[i]};
}
#endif

static void run(const struct step *program, int64_t steps, const struct memory *memory) {
  for (const struct step *step = program; step < program + steps; step++)
    levels[step->level][step->kind](step, memory);
}

/* Run a program on `images` images, `lanes` at a time. */
void hs_run(const struct step *program, int64_t steps, const int32_t *tables, float *workspace, const float *inputs,
            float *outputs, int64_t image_size, int64_t output_size, int64_t images, int64_t lanes) {
  for (int64_t first = 0; first < images; first += lanes) {
    const struct memory memory = {
        .tables = tables,
        .workspace = workspace,
        .images = inputs + first * image_size,
        .outputs = outputs + first * output_size,
        .image_size = image_size,
        .output_size = output_size,
        .images_here = images - first < lanes ? images - first : lanes,
    };
    run(program, steps, &memory);
  }
}

/* The shortest of some timings of one step, in seconds. */
double hs_time(const struct step *step, const int32_t *tables, float *workspace, int64_t repeats) {
  const struct memory memory = {.tables = tables, .workspace = workspace};
  double best = 1e9;
  for (int64_t repeat = 0; repeat < repeats; repeat++) {
    const double began = seconds();
    run(step, 1, &memory);
    const double took = seconds() - began;
    if (took < best) best = took;
  }
  return best;
}

double hs_peak(int64_t level, int64_t rounds) {
#ifdef __x86_64__
  if (level == 2) return peak_avx512(rounds);
  if (level == 1) return peak_avx2(rounds);
#endif
  (void)level;
  return peak_plain(rounds);
}
