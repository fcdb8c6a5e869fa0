/* Runs programs of sparse networks on a CPU, with a variant of every step for each instruction set.
 *
 * kernel_library.py builds it with GCC or Clang; it needs only the C library. Target attributes select the instruction set
 * of each function, and a table selects the function at run time, so one file serves every CPU of an architecture. */
#define _POSIX_C_SOURCE 199309L
#include "kernel.h"

#ifndef __wasm__
#include <time.h>
#endif
#ifdef __x86_64__
#include <immintrin.h>
#endif

#define MAX_LANES 64
#ifdef __wasm__
#define HAS_LAZY_BIAS 0 /* programs for it have none */
#else
#define HAS_LAZY_BIAS 1
#endif

#ifndef __wasm__ /* which has no clock */
static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
#endif

#ifdef __x86_64__
#define HOLD(vector) __asm__ volatile("" : "+v"(vector)) /* keeps the compiler from removing the loop */
#else
#define HOLD(vector) __asm__ volatile("" : "+w"(vector))
#endif

#include "softmax.h"

/* Level 0: SSE2 on x86-64 and NEON on 64-bit ARM, which every such CPU has. */
#define NAME(word) word##_plain
#define TARGET
#define VL 4
#ifdef __wasm__
#define LARGER(first, second) __builtin_wasm_pmax_f32x4(second, first)
#define SMALLER(first, second) __builtin_wasm_pmin_f32x4(second, first)
#endif
#ifdef __aarch64__
#define MAX_TILE_1 14
#define MAX_TILE_2 8
#define MAX_TILE_4 4
#elif defined(__wasm__) /* 12 is 15 to 20 % faster than 7 in V8 on x86-64, and 14 slower where rows are long */
#define MAX_TILE_1 12
#define MAX_TILE_2 4
#define MAX_TILE_4 2
#else
#define MAX_TILE_1 7
#define MAX_TILE_2 4
#define MAX_TILE_4 2
#endif
#define MAX_TILE_FEW 8
#ifdef __aarch64__
#define FUSED(a, b, c) __builtin_fmaf(a, b, c)
#else
#define FUSED(a, b, c) ((a) * (b) + (c))
#endif
#define MATMUL_ROWS 4
#ifdef __wasm__
#define MATMUL_VECTORS 2
#else
#define MATMUL_VECTORS 3
#endif
#include "dispatch.h"
#undef FUSED
#define FUSED(a, b, c) __builtin_fmaf(a, b, c) /* the compiler's own vector loop would round twice */

#ifdef __x86_64__
#define NAME(word) word##_avx2
#define LARGER _mm256_max_ps
#define SMALLER _mm256_min_ps
#define TARGET __attribute__((target("avx2,fma")))
#define VL 8
#define MAX_TILE_1 7
#define MAX_TILE_2 4
#define MAX_TILE_4 2
#define MAX_TILE_FEW 8
#define MATMUL_ROWS 4
#define MATMUL_VECTORS 3
#include "dispatch.h"

#define NAME(word) word##_avx512
#define LARGER _mm512_max_ps
#define SMALLER _mm512_min_ps
#define ADD_INSIDE(sum, weight, value, edge) ((VEC)_mm512_mask3_fmadd_ps(weight, value, sum, edge))
#define TARGET __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,fma,prefer-vector-width=512")))
#define VL 16
#define MAX_TILE_1 14
#define MAX_TILE_2 8
#define MAX_TILE_4 4
#define MAX_TILE_FEW 24
#define MATMUL_ROWS 4
#define MATMUL_VECTORS 6
#include "dispatch.h"

static const run_step *const levels[] = {steps_plain, steps_avx2, steps_avx512};
#else
static const run_step *const levels[] = {steps_plain};
#endif

int64_t hs_step_size(void) { return (int64_t)(sizeof(struct step) / sizeof(int64_t)); }

/* The number of levels that this CPU can run: 1 plain, 2 with AVX2, 3 with AVX-512. */
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

#ifndef __wasm__
/* Whether this CPU has the instructions of conv_int8.h. */
int64_t hs_int8(void) {
#ifdef __x86_64__
  return hs_levels() == 3 && __builtin_cpu_supports("avx512vnni");
#else
  return 0;
#endif
}
#endif

#ifdef HYPERSPARSE_CHECKED
/* Memory that later runs of this process may access: addresses and bytes of tables, workspace, images and outputs. */
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

#ifndef __wasm__
/* The shortest time of one step, in seconds. */
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
#endif
