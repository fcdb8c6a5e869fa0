typedef struct {
    const count_t *rows;
    const place_t *places;
    const int8_t *values;
    const int32_t *bias, *multiplier;
    const uint8_t *shift;
    int low, high; /* of the output */
} layer_t;

/* A sum of two values: (x * mine + z * other) >> shift, between low and high. */
typedef struct {
    int32_t mine, other;
    int shift, low, high;
} merge_t;

static int32_t clamped(int32_t value, int low, int high)
{
    value = value > low ? value : low;
    return value < high ? value : high;
}

/* (sum * multiplier + 2^(shift - 1)) >> shift; >> of negative numbers is arithmetic in every compiler for these parts */
static void requantize_X_Y(const X_t *x, Y_t *y, int size, int32_t multiplier, int shift, int low, int high)
{
    if (shift < 33) {
        int64_t half = (int64_t)1 << (shift - 1);
        for (int at = 0; at < size; at++) {
            int64_t value = ((int64_t)x[at] * multiplier + half) >> shift;
            y[at] = (Y_t)(value < low ? low : value > high ? high : value);
        }
        return;
    }
    int32_t half = (int32_t)1 << (shift - 33); /* the lower words add nothing */
    for (int at = 0; at < size; at++) {
        int32_t upper = (int32_t)((int64_t)x[at] * multiplier >> 32);
        y[at] = (Y_t)clamped((upper + half) >> (shift - 32), low, high);
    }
}

static void add_X_Z_Y(const X_t *x, const Z_t *z, Y_t *y, int size, const merge_t *how)
{
    int32_t half = (int32_t)1 << (how->shift - 1);
    for (int at = 0; at < size; at++)
        y[at] = (Y_t)clamped((x[at] * how->mine + z[at] * how->other + half) >> how->shift, how->low, how->high);
}

static void plane_X_Y(const X_t *x, const int32_t *plane, Y_t *y, int size, const merge_t *how)
{
    int32_t half = (int32_t)1 << (how->shift - 1);
    for (int at = 0; at < size; at++)
        y[at] = (Y_t)clamped((x[at] * how->mine + plane[at] + half) >> how->shift, how->low, how->high);
}

/* The sums of one output channel; returns how many of its pixels differ: one, where it has no weights. */
static int channel_sums_X(const X_t *x, int32_t *sums, const window_t *at, const layer_t *layer, int channel)
{
    count_t kept = layer->rows[channel], end = layer->rows[channel + 1];
    int area = kept == end ? 1 : at->out_height * at->out_width;
    x += (size_t)(channel / at->group_outputs) * at->group_inputs * at->height * at->width;
    fill_i32(sums, area, layer->bias[channel]);
    for (; kept < end; kept++)
        add_product_X(x, sums, at, (int)layer->places[kept], layer->values[kept]);
    return area;
}

static void conv_X_Y(const X_t *x, Y_t *y, const window_t *at, const layer_t *layer, int32_t *sums)
{
    int area = at->out_height * at->out_width;
    for (int channel = 0; channel < at->channels; channel++, y += area) {
        int found = channel_sums_X(x, sums, at, layer, channel);
        requantize_i32_Y(sums, y, found, layer->multiplier[channel], layer->shift[channel], layer->low, layer->high);
        if (found < area)
            fill_Y(y, area, y[0]);
    }
}

/* conv, and the sum of its output and z; y may be z */
static void conv_add_X_Z_Y(const X_t *x, const Z_t *z, Y_t *y, const window_t *at, const layer_t *layer,
                           const merge_t *how, int32_t *sums)
{
    int area = at->out_height * at->out_width;
    for (int channel = 0; channel < at->channels; channel++, y += area, z += area) {
        int found = channel_sums_X(x, sums, at, layer, channel);
        requantize_i32_i32(sums, sums, found, layer->multiplier[channel], layer->shift[channel], layer->low,
                           layer->high);
        if (found < area)
            fill_i32(sums, area, sums[0]);
        add_i32_Z_Y(sums, z, y, area, how);
    }
}

static void linear_X_Y(const X_t *x, Y_t *y, int outputs, const layer_t *layer)
{
    for (int output = 0; output < outputs; output++) {
        int32_t sum = layer->bias[output];
        for (count_t kept = layer->rows[output]; kept < layer->rows[output + 1]; kept++)
            sum += layer->values[kept] * x[layer->places[kept]];
        requantize_i32_Y(&sum, y + output, 1, layer->multiplier[output], layer->shift[output], layer->low,
                         layer->high);
    }
}

static void mean_X_Y(const X_t *x, Y_t *y, int channels, int area, int32_t multiplier, int shift, int low, int high)
{
    for (int channel = 0; channel < channels; channel++) {
        int32_t sum = 0;
        for (int at = channel * area; at < (channel + 1) * area; at++)
            sum += x[at];
        requantize_i32_Y(&sum, y + channel, 1, multiplier, shift, low, high);
    }
}

static void avg_pool_X_Y(const X_t *x, Y_t *y, const window_t *at, int32_t multiplier, int shift, int low, int high)
{
    for (int channel = 0; channel < at->channels; channel++, x += at->height * at->width)
        for (int row = 0; row < at->out_height; row++)
            for (int column = 0; column < at->out_width; column++, y++) {
                int32_t sum = window_sum_X(x, at, row, column);
                requantize_i32_Y(&sum, y, 1, multiplier, shift, low, high);
            }
}

static void clip_X_Y(const X_t *x, Y_t *y, int size, int low, int high)
{
    for (int at = 0; at < size; at++)
        y[at] = (Y_t)clamped(x[at], low, high);
}

static void lookup_X_Y(const X_t *x, Y_t *y, int size, const Y_t *table, int low)
{
    for (int at = 0; at < size; at++)
        y[at] = table[x[at] - low];
}

/* Two values element by element, read with the same sides. */
static void product_X_Z_Y(const X_t *x, const Z_t *z, Y_t *y, const view_t *of_x, const view_t *of_z,
                          int32_t multiplier, int shift, int low, int high)
{
    for (int32_t row = 0; row < of_x->rows; row++) {
        const X_t *one = x + row_start(of_x, row);
        const Z_t *two = z + row_start(of_z, row);
        for (int32_t place = 0; place < of_x->length; place++, y++) {
            int32_t product = one[place * of_x->step] * two[place * of_z->step];
            requantize_i32_Y(&product, y, 1, multiplier, shift, low, high);
        }
    }
}
