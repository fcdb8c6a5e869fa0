/* Runs a program that a file holds, for kernels of other processors: replay FILE, outputs to stdout. */
#include <stdio.h>
#include <stdlib.h>

#include "../../hypersparse_runtime/kernel/kernel.h"

void hs_run(const struct step *program, int64_t steps, const int32_t *tables, float *workspace, const float *inputs,
            float *outputs, int64_t image_size, int64_t output_size, int64_t images, int64_t lanes);

static void *take(FILE *file, size_t bytes) {
  void *room = aligned_alloc(64, (bytes + 127) / 64 * 64);
  if (!room || fread(room, 1, bytes, file) != bytes) exit(1);
  return room;
}

int main(int count, char **names) {
  FILE *file = count == 2 ? fopen(names[1], "rb") : 0;
  int64_t sizes[7]; /* steps, table words, workspace floats, image and output floats, images, lanes */
  if (!file || fread(sizes, sizeof sizes, 1, file) != 1) return 1;
  struct step *steps = take(file, (size_t)sizes[0] * sizeof(struct step));
  int32_t *tables = take(file, (size_t)sizes[1] * 4);
  float *images = take(file, (size_t)(sizes[3] * sizes[5]) * 4);
  float *workspace = aligned_alloc(64, ((size_t)sizes[2] * 4 + 127) / 64 * 64);
  float *outputs = calloc((size_t)(sizes[4] * sizes[5]), 4);
  if (!workspace || !outputs) return 1;
  for (int64_t i = 0; i < sizes[2]; i++) workspace[i] = 0.0f;
  hs_run(steps, sizes[0], tables, workspace, images, outputs, sizes[3], sizes[4], sizes[5], sizes[6]);
  return fwrite(outputs, 4, (size_t)(sizes[4] * sizes[5]), stdout) == (size_t)(sizes[4] * sizes[5]) ? 0 : 1;
}
