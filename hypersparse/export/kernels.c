static void conv(const float *x, float *y, int height, int width, int channels, int out_height, int out_width,
                 int kernel_height, int kernel_width, int stride_y, int stride_x, int pad_y, int pad_x, int dilation_y,
                 int dilation_x, int group_inputs, int group_outputs, const uint32_t *rows, const place_t *places,
                 const float *values, const float *bias)
{
    for (int channel = 0; channel < channels; channel++) {
        float *out = y + (size_t)channel * out_height * out_width;
        const float *in = x + (size_t)(channel / group_outputs) * group_inputs * height * width;
        for (int at = 0; at < out_height * out_width; at++)
            out[at] = bias ? bias[channel] : 0.0f;
        for (uint32_t kept = rows[channel]; kept < rows[channel + 1]; kept++) {
            int place = (int)places[kept], area = kernel_height * kernel_width;
            int from_y = place % area / kernel_width * dilation_y - pad_y;
            int from_x = place % kernel_width * dilation_x - pad_x;
            const float *plane = in + (size_t)(place / area) * height * width;
            for (int row = 0; row < out_height; row++) {
                int at_y = row * stride_y + from_y;
                if (at_y < 0 || at_y >= height)
                    continue;
                for (int column = 0; column < out_width; column++) {
                    int at_x = column * stride_x + from_x;
                    if (at_x >= 0 && at_x < width)
                        out[row * out_width + column] += values[kept] * plane[at_y * width + at_x];
                }
            }
        }
    }
}

static void linear(const float *x, float *y, int outputs, const uint32_t *rows, const place_t *places,
                   const float *values, const float *bias)
{
    for (int output = 0; output < outputs; output++) {
        float sum = bias ? bias[output] : 0.0f;
        for (uint32_t kept = rows[output]; kept < rows[output + 1]; kept++)
            sum += values[kept] * x[places[kept]];
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

static void max_pool(const float *x, float *y, int height, int width, int channels, int out_height, int out_width,
                     int kernel_height, int kernel_width, int stride_y, int stride_x, int pad_y, int pad_x)
{
    for (int channel = 0; channel < channels; channel++)
        for (int row = 0; row < out_height; row++)
            for (int column = 0; column < out_width; column++) {
                const float *plane = x + (size_t)channel * height * width;
                int found = 0;
                float best = 0.0f;
                for (int at = 0; at < kernel_height * kernel_width; at++) {
                    int at_y = row * stride_y - pad_y + at / kernel_width;
                    int at_x = column * stride_x - pad_x + at % kernel_width;
                    if (at_y < 0 || at_y >= height || at_x < 0 || at_x >= width)
                        continue;
                    if (!found || plane[at_y * width + at_x] > best)
                        best = plane[at_y * width + at_x];
                    found = 1;
                }
                y[((size_t)channel * out_height + row) * out_width + column] = best;
            }
}

static void avg_pool(const float *x, float *y, int height, int width, int channels, int out_height, int out_width,
                     int kernel_height, int kernel_width, int stride_y, int stride_x, int pad_y, int pad_x)
{
    for (int channel = 0; channel < channels; channel++)
        for (int row = 0; row < out_height; row++)
            for (int column = 0; column < out_width; column++) {
                const float *plane = x + (size_t)channel * height * width;
                float sum = 0.0f;
                for (int at = 0; at < kernel_height * kernel_width; at++) {
                    int at_y = row * stride_y - pad_y + at / kernel_width;
                    int at_x = column * stride_x - pad_x + at % kernel_width;
                    if (at_y >= 0 && at_y < height && at_x >= 0 && at_x < width)
                        sum += plane[at_y * width + at_x];
                }
                y[((size_t)channel * out_height + row) * out_width + column] = sum / (float)(kernel_height * kernel_width);
            }
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

static void copy(const float *x, float *y, int size)
{
    for (int at = 0; at < size; at++)
        y[at] = x[at];
}
