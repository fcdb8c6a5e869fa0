/* One step of a program: a row of 64-bit integers, written by kernel_program.py in this order. */
#ifndef HYPERSPARSE_KERNEL_H
#define HYPERSPARSE_KERNEL_H

#include <stddef.h>
#include <stdint.h>

/* How a group's sum is shifted sideways: not at all, or within rows of at most one vector, of two, of more. */
enum mode { STILL = 0, SHORT_ROWS = 1, PAIRS = 2, LONG_ROWS = 3 };

enum kind {
  CONV = 0, DOT = 1, SPLIT = 2, MAX_POOL = 3, MEAN = 4, PACK = 5, UNPACK = 6, CONV_FEW_TAPS = 7, CONV_SMALL_PLANES = 8,
  CONV_SHARED_LOADS = 9, REPEAT_ROWS = 10, CLEAR = 11, SOFTMAX = 12, LOG_SOFTMAX = 13, COPY = 14, ELEMENTWISE = 15,
  ARITHMETIC = 16, LAYER_NORM = 17, GROUP_NORM = 18, MATMUL = 19, SOFTMAX_PLANES = 20, REDUCE = 21, EMBEDDING = 22,
  RESAMPLE = 23, LSTM = 24, GRU = 25, WINOGRAD_INPUT = 26, WINOGRAD_OUTPUT = 27, CONV_INT8 = 28, LARGEST = 29,
  QUANTIZE = 30
};

/* Functions of elements and operators of two values, in the order of functions.py, each with what it computes
 * in elementwise.h. Steps of these kinds have them in kernel_y; value_steps says what else they have in which word. */
#define FUNCTIONS(F) \
  F(SIGMOID, NAME(sigmoid_of)(x)) \
  F(TANH, NAME(tanh_of)(x)) \
  F(SILU, x * NAME(sigmoid_of)(x)) \
  F(GELU, 0.5f * x * (1.0f + NAME(erf_of)(x * 0.707106781f))) \
  F(GELU_TANH, x * NAME(sigmoid_of)(1.59576912f * (x + 0.044715f * x * x * x))) \
  F(HARDSWISH, x * NAME(clipped_sixth)(x)) \
  F(HARDSIGMOID, NAME(clipped_sixth)(x)) \
  F(LEAKY_RELU, NAME(chosen)(x > 0.0f, x, x * parameter)) \
  F(ELU, NAME(elu_of)(x, parameter)) \
  F(SOFTPLUS, NAME(softplus_of)(x)) \
  F(MISH, x * NAME(tanh_of)(NAME(softplus_of)(x))) \
  F(EXP, NAME(exp_of)(x)) \
  F(ERF, NAME(erf_of)(x)) \
  F(SQRT, NAME(root_of)(x)) \
  F(RSQRT, 1.0f / NAME(root_of)(x)) \
  F(LOG, NAME(log_of)(x)) \
  F(ABS, NAME(magnitude)(x)) \
  F(NEG, -x) \
  F(SELU, 1.05070099f * NAME(elu_of)(x, 1.67326324f)) \
  F(CELU, NAME(celu_of)(x, parameter)) \
  F(LOG_SIGMOID, -NAME(softplus_of)(-x))
#define OPERATORS(F) \
  F(ADD, a + b) \
  F(SUB, a - b) \
  F(MUL, a * b) \
  F(DIV, a / b) \
  F(MAXIMUM, NAME(chosen)((a > b) | (a != a), a, b)) \
  F(MINIMUM, NAME(chosen)((a < b) | (a != a), a, b)) \
  F(RSUB, b - a) \
  F(RDIV, b / a)
#define NAMED(name, computed) name,
enum function { FUNCTIONS(NAMED) };
enum operator { OPERATORS(NAMED) };
#undef NAMED
#define CASE(name, computed) case name: return computed; /* of a switch over one of them */

/* Offsets of values count floats from the start of the workspace. Offsets of tables count 32-bit words of constants. */
struct step {
  int64_t kind;
  int64_t level;          /* index of the instruction set it runs with */
  int64_t input, output;  /* values: where channel 0, row 0, column 0 lies */
  int64_t input_plane, output_plane; /* floats from channel to channel */
  int64_t rows;           /* output channels to compute */
  int64_t channels;       /* table: the channel of each row; for SPLIT, CLEAR triples or pairs */
  int64_t groups;         /* of entries in each row, by their column distance; the first has distance 0 */
  int64_t distances;      /* table: one for each group */
  int64_t shifts;         /* table: the source of each lane, a vector for each group, for vectors of 4, 8 and 16; or -1 */
  int64_t starts;         /* table: where the entries of each group begin, rows * groups + 1 */
  int64_t entries;        /* table: pairs of offset (int32) and weight (float); see also conv_shared_loads.h */
  int64_t edge_masks;          /* table: for CONV_FEW_TAPS a bit for each of the first and last 16 floats of a row */
  int64_t bias;           /* table: one float for each row */
  int64_t plane;          /* table: one float for each row and position, or -1 */
  int64_t plane_size;     /* floats of it for each row */
  int64_t mask;           /* table: all bits set where the output is not padding, for a whole run; or -1 */
  int64_t residual;       /* a value with the output's layout to add, or -1 */
  int64_t lazy_bias;       /* table: offset and floor of each row: max(residual + offset, floor) is added; NaN: no residual;
                             or -1. For SPLIT max(input + offset, floor) is copied */
  int64_t relu;
  int64_t clip;           /* table: lower and upper bound of sums, instead of a ReLU; or -1 */
  int64_t segments, segment_stride, segment_length; /* runs of floats of an output plane to compute; for
                             REPEAT_ROWS the number of rows to copy */
  int64_t pad_first, pad_length, pad_stride, pad_end; /* floats to clear in each run; stride 0: none */
  int64_t tile;           /* vectors computed together */
  int64_t tile_outer;     /* loop order: 1 all rows of a tile first, 0 all tiles of a row first */
  int64_t chains;         /* independent sums: 2 for even and odd entries */
  int64_t blocks;         /* of input channels, summed one after another, for CONV_SHARED_LOADS */
  int64_t lanes, lane_shift; /* interleaved images, and its logarithm to base 2 */
  int64_t height, width, pitch, fold;       /* of the input, in positions; fold: see row_at */
  int64_t out_height, out_width, out_pitch, out_fold; /* of the output, in positions */
  int64_t kernel_y, kernel_x, stride_y, stride_x, pad_y, pad_x;
};

struct entry {
  int32_t offset;
  float weight;
};

struct memory {
  const int32_t *tables;
  float *workspace;
  const float *images; /* images, channels, height, width */
  float *outputs;
  int64_t image_size, output_size; /* floats of one */
  int64_t images_here;             /* lanes that hold an image */
};

/* Images side by side. WebAssembly runs one after another, and its rows are never folded: that saves 9 kB of code. */
static inline int64_t lanes_of(const struct step *step) {
#ifdef __wasm__
  return 1;
#else
  return step->lanes;
#endif
}

/* Where row y of a plane begins. In a folded plane a vector holds a row and the row `fold` rows below. */
static inline int64_t row_at(int64_t y, int64_t pitch, int64_t fold) {
#ifdef __wasm__
  return y * pitch;
#else
  return !fold ? y * pitch : y < fold ? 2 * y * pitch : (2 * (y - fold) + 1) * pitch;
#endif
}

/* A checked build aborts on an access outside the workspace, tables, images and outputs that hs_check named before the
 * run. Every read or write of `count` numbers at a pointer goes through AT. */
#ifdef HYPERSPARSE_CHECKED
#include <stdio.h>
#include <stdlib.h>
static struct range {
  const char *from, *to;
} ranges[4];

static inline uintptr_t inside(const void *pointer, int64_t bytes) {
  const char *at = (const char *)pointer;
  for (int i = 0; i < 4; i++)
    if (at >= ranges[i].from && at + bytes <= ranges[i].to) return (uintptr_t)pointer;
  fprintf(stderr, "hypersparse: %lld bytes at %p are outside the memory of the program\n", (long long)bytes, pointer);
  abort();
}
#define AT(pointer, count) ((__typeof__(pointer))inside(pointer, (int64_t)(count) * (int64_t)sizeof *(pointer)))
#else
#define AT(pointer, count) (pointer)
#endif

/* Clang has no such function. It makes one instruction of this where the places are constant. */
#ifdef __clang__
#define __builtin_shuffle(first, second, places) \
  ({ \
    const __auto_type of_first = (first); \
    const __auto_type of_second = (second); \
    const __auto_type from = (places); \
    const int size = sizeof from / sizeof from[0]; \
    __auto_type shuffled = of_first; \
    _Pragma("clang loop unroll(full)") \
    for (int i = 0; i < size; i++) \
      shuffled[i] = from[i] & size ? of_second[from[i] & (size - 1)] : of_first[from[i] & (size - 1)]; \
    shuffled; \
  })
#endif

typedef void (*run_step)(const struct step *, const struct memory *);

#endif
