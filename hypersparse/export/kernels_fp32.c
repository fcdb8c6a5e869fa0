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
