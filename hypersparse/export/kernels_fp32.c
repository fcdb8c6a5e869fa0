typedef struct {
    const count_t *rows;
    const place_t *places;
    const float *values, *bias;
} layer_t;

/* `other` is a value of the output's shape that is added, or NULL. */
static void conv(const float *x, float *y, const window_t *at, const layer_t *layer, const float *other)
{
    int area = at->out_height * at->out_width;
    for (int channel = 0; channel < at->channels; channel++, y += area) {
        const float *in = x + (size_t)(channel / at->group_outputs) * at->group_inputs * at->height * at->width;
        float bias = layer->bias ? layer->bias[channel] : 0.0f;
        for (int pixel = 0; pixel < area; pixel++)
            y[pixel] = other ? other[channel * area + pixel] + bias : bias;
        for (count_t kept = layer->rows[channel]; kept < layer->rows[channel + 1]; kept++)
            add_product_f32(in, y, at, (int)layer->places[kept], layer->values[kept]);
    }
}

static void linear(const float *x, float *y, int outputs, const layer_t *layer)
{
    for (int output = 0; output < outputs; output++) {
        float sum = layer->bias ? layer->bias[output] : 0.0f;
        for (count_t kept = layer->rows[output]; kept < layer->rows[output + 1]; kept++)
            sum += layer->values[kept] * x[layer->places[kept]];
        y[output] = sum;
    }
}

static void scale(const float *x, float *y, int channels, int area, const float *factor, const float *shift)
{
    for (int channel = 0; channel < channels; channel++)
        for (int at = channel * area; at < (channel + 1) * area; at++)
            y[at] = x[at] * factor[channel] + shift[channel];
}

static void relu(const float *x, float *y, int size)
{
    for (int at = 0; at < size; at++)
        y[at] = x[at] > 0.0f ? x[at] : 0.0f;
}

static void clip(const float *x, float *y, int size, float low, float high)
{
    for (int at = 0; at < size; at++)
        y[at] = x[at] < low ? low : x[at] > high ? high : x[at];
}

static void add(const float *x, const float *z, float *y, int size)
{
    for (int at = 0; at < size; at++)
        y[at] = x[at] + z[at];
}

static void avg_pool(const float *x, float *y, const window_t *at)
{
    float size = (float)(at->kernel_height * at->kernel_width);
    for (int channel = 0; channel < at->channels; channel++, x += at->height * at->width)
        for (int row = 0; row < at->out_height; row++)
            for (int column = 0; column < at->out_width; column++)
                *y++ = window_sum_f32(x, at, row, column) / size;
}

static void mean(const float *x, float *y, int channels, int area)
{
    for (int channel = 0; channel < channels; channel++) {
        float sum = 0.0f;
        for (int at = channel * area; at < (channel + 1) * area; at++)
            sum += x[at];
        y[channel] = sum / (float)area;
    }
}

static void softmax(const float *x, float *y, int size)
{
    float most = x[0], sum = 0.0f;
    for (int at = 1; at < size; at++)
        most = x[at] > most ? x[at] : most;
    for (int at = 0; at < size; at++) {
        y[at] = expf(x[at] - most);
        sum += y[at];
    }
    for (int at = 0; at < size; at++)
        y[at] /= sum;
}

static void log_softmax(const float *x, float *y, int size)
{
    float most = x[0], sum = 0.0f;
    for (int at = 1; at < size; at++)
        most = x[at] > most ? x[at] : most;
    for (int at = 0; at < size; at++)
        sum += expf(x[at] - most);
    for (int at = 0; at < size; at++)
        y[at] = x[at] - most - logf(sum);
}

static void copy_rows(const float *x, float *y, int rows, int length, int apart)
{
    for (; rows > 0; rows--, x += length, y += apart)
        copy_f32(x, y, length);
}

static void apply_F(const float *x, float *y, int size)
{
    for (int at = 0; at < size; at++)
        y[at] = of_F(x[at]);
}

static void apply_with_F(const float *x, float *y, int size, float parameter)
{
    for (int at = 0; at < size; at++)
        y[at] = of_F(x[at], parameter);
}

/* Two values element by element, read with the same sides. */
static void join_F(const float *x, const float *z, float *y, const view_t *of_x, const view_t *of_z)
{
    for (int32_t row = 0; row < of_x->rows; row++) {
        const float *one = x + row_start(of_x, row), *two = z + row_start(of_z, row);
        for (int32_t place = 0; place < of_x->length; place++)
            *y++ = of_F(one[place * of_x->step], two[place * of_z->step]);
    }
}

static void fold_F(const float *x, float *y, int rows, int length)
{
    for (int row = 0; row < rows; row++, x += length) {
        y[row] = x[0];
        for (int at = 1; at < length; at++)
            y[row] = of_F(y[row], x[at]);
    }
}

static void embedding(const float *x, float *y, int count, int width, const float *table)
{
    for (; count > 0; count--, y += width)
        copy_f32(table + (size_t)*x++ * width, y, width);
}

static void token_linear(const float *x, float *y, int rows, int inputs, int outputs, const layer_t *layer)
{
    for (; rows > 0; rows--, x += inputs, y += outputs)
        linear(x, y, outputs, layer);
}

static void softmax_rows(const float *x, float *y, int rows, int length)
{
    for (; rows > 0; rows--, x += length, y += length)
        softmax(x, y, length);
}

/* (x - mean) / deviation */
static void standardize(const float *x, float *y, int size, float epsilon)
{
    float sum = 0.0f, squares = 0.0f;
    for (int at = 0; at < size; at++)
        sum += x[at];
    float mean_of_x = sum / (float)size;
    for (int at = 0; at < size; at++)
        squares += (x[at] - mean_of_x) * (x[at] - mean_of_x);
    float factor = 1.0f / sqrtf(squares / (float)size + epsilon);
    for (int at = 0; at < size; at++)
        y[at] = (x[at] - mean_of_x) * factor;
}

static void layer_norm(const float *x, float *y, int rows, int length, const float *gain, const float *shift,
                       float epsilon)
{
    for (; rows > 0; rows--, x += length, y += length) {
        standardize(x, y, length, epsilon);
        for (int at = 0; at < length; at++)
            y[at] = y[at] * (gain ? gain[at] : 1.0f) + (shift ? shift[at] : 0.0f);
    }
}

static void group_norm(const float *x, float *y, int groups, int channels, int area, const float *gain,
                       const float *shift, float epsilon)
{
    for (int group = 0; group < groups; group++)
        standardize(x + group * channels * area, y + group * channels * area, channels * area, epsilon);
    for (int channel = 0; channel < groups * channels; channel++)
        for (int at = channel * area; at < (channel + 1) * area; at++)
            y[at] = y[at] * (gain ? gain[channel] : 1.0f) + (shift ? shift[channel] : 0.0f);
}

/* Matrices (rows, terms) times matrices (terms, columns); those of x and of z lie `x_apart` and `z_apart` apart. */
static void matmul(const float *x, const float *z, float *y, int batches, int rows, int terms, int columns, int x_apart,
                   int z_apart, float factor)
{
    for (; batches > 0; batches--, x += x_apart, z += z_apart)
        for (int row = 0; row < rows; row++)
            for (int column = 0; column < columns; column++) {
                float sum = 0.0f;
                for (int term = 0; term < terms; term++)
                    sum += x[row * terms + term] * z[term * columns + column];
                *y++ = sum * factor;
            }
}

/* Weighted sums over rows and columns, the same for every channel. */
static void resample(const float *x, float *y, int channels, int height, int width, int out_height, int out_width,
                     const layer_t *down, const layer_t *right)
{
    for (; channels > 0; channels--, x += height * width)
        for (int row = 0; row < out_height; row++)
            for (int column = 0; column < out_width; column++) {
                float sum = 0.0f;
                for (count_t one = down->rows[row]; one < down->rows[row + 1]; one++)
                    for (count_t two = right->rows[column]; two < right->rows[column + 1]; two++)
                        sum += down->values[one] * right->values[two] * x[down->places[one] * width + right->places[two]];
                *y++ = sum;
            }
}

static void conv_transpose(const float *x, float *y, const window_t *at, const layer_t *layer)
{
    int area = at->out_height * at->out_width, taps = at->kernel_height * at->kernel_width;
    for (int channel = 0; channel < at->channels; channel++, y += area) {
        const float *in = x + (size_t)(channel / at->group_outputs) * at->group_inputs * at->height * at->width;
        fill_f32(y, area, layer->bias ? layer->bias[channel] : 0.0f);
        for (count_t kept = layer->rows[channel]; kept < layer->rows[channel + 1]; kept++) {
            int place = (int)layer->places[kept];
            const float *from = in + (size_t)(place / taps) * at->height * at->width;
            int top = place % taps / at->kernel_width * at->dilation_y - at->pad_y;
            int left = place % at->kernel_width * at->dilation_x - at->pad_x;
            for (int row = 0; row < at->height; row++)
                for (int column = 0; column < at->width; column++, from++) {
                    int to_y = top + row * at->stride_y, to_x = left + column * at->stride_x;
                    if (to_y >= 0 && to_y < at->out_height && to_x >= 0 && to_x < at->out_width)
                        y[to_y * at->out_width + to_x] += layer->values[kept] * *from;
                }
        }
    }
}

/* `scratch` has two sums for each gate, the cell, and the state before the first step. */
static void lstm(const float *x, float *y, int steps, int inputs, int size, int reverse, const layer_t *into,
                 const layer_t *back, float *scratch)
{
    float *sums = scratch, *more = sums + 4 * size, *cell = more + 4 * size;
    const float *before = cell + size;
    fill_f32(cell, 2 * size, 0.0f);
    for (int step = 0; step < steps; step++) {
        int at = reverse ? steps - 1 - step : step;
        float *now = y + at * size;
        linear(x + at * inputs, sums, 4 * size, into);
        linear(before, more, 4 * size, back);
        for (int gate = 0; gate < 4 * size; gate++)
            sums[gate] += more[gate];
        for (int place = 0; place < size; place++) {
            float gain = of_sigmoid(sums[place]) * tanhf(sums[2 * size + place]);
            cell[place] = of_sigmoid(sums[size + place]) * cell[place] + gain;
            now[place] = of_sigmoid(sums[3 * size + place]) * tanhf(cell[place]);
        }
        before = now;
    }
}

static void gru(const float *x, float *y, int steps, int inputs, int size, int reverse, const layer_t *into,
                const layer_t *back, float *scratch)
{
    float *sums = scratch, *more = sums + 3 * size;
    const float *before = more + 3 * size;
    fill_f32(more + 3 * size, size, 0.0f);
    for (int step = 0; step < steps; step++) {
        int at = reverse ? steps - 1 - step : step;
        float *now = y + at * size;
        linear(x + at * inputs, sums, 3 * size, into);
        linear(before, more, 3 * size, back);
        for (int place = 0; place < size; place++) {
            float reset = of_sigmoid(sums[place] + more[place]);
            float keep = of_sigmoid(sums[size + place] + more[size + place]);
            float made = tanhf(sums[2 * size + place] + reset * more[2 * size + place]);
            now[place] = made + keep * (before[place] - made);
        }
        before = now;
    }
}
