/* What one operation is: a row of 64-bit numbers, written by program.py in this order. */
#ifndef HYPERSPARSE_KERNEL_H
#define HYPERSPARSE_KERNEL_H

#include <stdint.h>

/* How a group's sum is moved aside: not at all, or within rows of at most one vector, of two, of more. */
enum mode { STILL = 0, SHORT_ROWS = 1, PAIRS = 2, LONG_ROWS = 3 };

enum kind {
  CONV = 0, DOT = 1, SPLIT = 2, MAX_POOL = 3, MEAN = 4, PACK = 5, UNPACK = 6, DIRECT_CONV = 7, SQUARE_CONV = 8,
  SHARED_CONV = 9, ECHO = 10, CLEAR = 11, SOFTMAX = 12, LOG_SOFTMAX = 13
};

/* Offsets of values count floats from the start of the workspace, those of tables 32-bit words of the constants. */
struct step {
  int64_t kind;
  int64_t level;          /* index of the instruction set it runs with */
  int64_t input, output;  /* values: where channel 0, row 0, column 0 lies */
  int64_t input_plane, output_plane; /* floats from channel to channel */
  int64_t rows;           /* output channels that are computed */
  int64_t channels;       /* table: which channel each row is; for SPLIT, MAX_POOL, MEAN, CLEAR pairs or triples */
  int64_t groups;         /* of entries in each row, by their distance to the side; the first has distance 0 */
  int64_t distances;      /* table: one a group */
  int64_t shifts;         /* table: where each lane comes from, a vector a group for vectors of 4, 8 and 16; or -1 */
  int64_t starts;         /* table: where each group's entries begin, rows * groups + 1 */
  int64_t entries;        /* table: pairs of offset (int32) and weight (float); for SHARED_CONV see conv_shared_loads.h */
  int64_t sides;          /* table: for DIRECT_CONV the floats of a row that each entry adds to, 16 bits from both ends */
  int64_t bias;           /* table: one float a row */
  int64_t plane;          /* table: one float a row and position, or -1 */
  int64_t plane_size;     /* floats of it from row to row */
  int64_t mask;           /* table: all ones where the output is no padding, for a whole run; or -1 */
  int64_t residual;       /* value that is added, of the output's geometry, or -1 */
  int64_t residues;       /* table: offset and floor of each row, for max(residual + offset, floor), NaN: none; or -1.
                             For SPLIT of what is copied */
  int64_t relu;
  int64_t clip;           /* table: what sums are kept between, two floats, in the place of a ReLU; or -1 */
  int64_t segments, segment_stride, segment_length; /* runs of floats of an output plane that are computed; for ECHO how
                             many rows are copied */
  int64_t pad_first, pad_length, pad_stride, pad_end; /* floats set to zero again in each run; stride 0: none */
  int64_t tile;           /* vectors at a time */
  int64_t tile_outer;     /* loop order: 1 all rows of a tile, 0 all tiles of a row */
  int64_t chains;         /* 2: even and odd entries are summed apart */
  int64_t blocks;         /* of channels that are summed one after the other, for SHARED_CONV */
  int64_t lanes, lane_shift; /* images side by side, and the power of two that is */
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
  int64_t images_here;             /* how many of the lanes are images */
};

/* Where row y of a plane begins. In a folded one every row makes a vector with the one `fold` rows below. */
static inline int64_t row_at(int64_t y, int64_t pitch, int64_t fold) {
  return !fold ? y * pitch : y < fold ? 2 * y * pitch : (2 * (y - fold) + 1) * pitch;
}

/* In a checked build the program ends where it touches anything outside its workspace, its tables, the images and the
 * outputs, which hs_check names before each run. AT is what `count` numbers at a pointer are read and written through. */
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
  fprintf(stderr, "hypersparse: %lld bytes at %p are outside of what a program may touch\n", (long long)bytes, pointer);
  abort();
}
#define AT(pointer, count) ((__typeof__(pointer))inside(pointer, (int64_t)(count) * (int64_t)sizeof *(pointer)))
#else
#define AT(pointer, count) (pointer)
#endif

typedef void (*run_step)(const struct step *, const struct memory *);

#endif
