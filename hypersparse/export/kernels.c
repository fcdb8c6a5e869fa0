typedef struct {
    side_t height, width, channels, out_height, out_width, kernel_height, kernel_width, stride_y, stride_x, pad_y, pad_x,
        dilation_y, dilation_x, group_inputs, group_outputs;
} window_t;

/* The outputs of a row or column whose inputs, `stride` apart from `from` on, lie inside. */
static int first_inside(int from, int stride)
{
    return from >= 0 ? 0 : (stride - 1 - from) / stride;
}

static int end_inside(int from, int stride, int inputs, int outputs)
{
    int end = from < inputs ? (inputs - 1 - from) / stride + 1 : 0;
    return end < outputs ? end : outputs;
}

/* One kept weight times the plane that it reads, added to the plane of sums. */
static void add_product_X(const X_t *x, sum_t *sums, const window_t *at, int place, sum_t weight)
{
    int area = at->kernel_height * at->kernel_width, stride = at->stride_x;
    int from_y = place % area / at->kernel_width * at->dilation_y - at->pad_y;
    int from_x = place % at->kernel_width * at->dilation_x - at->pad_x;
    int first_row = first_inside(from_y, at->stride_y);
    int rows = end_inside(from_y, at->stride_y, at->height, at->out_height) - first_row;
    int first = first_inside(from_x, stride), count = end_inside(from_x, stride, at->width, at->out_width) - first;
    if (rows <= 0 || count <= 0)
        return;
    const X_t *plane = x + ((size_t)(place / area) * at->height + first_row * at->stride_y + from_y) * at->width;
    if (rows > 0 && at->stride_y == 1 && stride == 1 && count == at->width && count == at->out_width) {
        count *= rows; /* whole rows lie behind each other */
        rows = 1;
    }
    for (sum_t *row = sums + first_row * at->out_width + first; rows > 0; rows--, row += at->out_width) {
        const X_t *from = plane + first * stride + from_x;
        sum_t *to = row;
        int left = count;
        if (stride != 1) {
            for (; left > 0; left--, from += stride)
                *to++ += weight * *from;
        } else {
            for (; left >= 4; left -= 4, from += 4, to += 4) {
                to[0] += weight * from[0];
                to[1] += weight * from[1];
                to[2] += weight * from[2];
                to[3] += weight * from[3];
            }
            if (left & 2) {
                *to++ += weight * *from++;
                *to++ += weight * *from++;
            }
            if (left & 1)
                *to += weight * *from;
        }
        plane += at->stride_y * at->width;
    }
}

static void max_pool_X(const X_t *x, X_t *y, const window_t *at)
{
    for (int channel = 0; channel < at->channels; channel++, x += at->height * at->width)
        for (int row = 0; row < at->out_height; row++)
            for (int column = 0; column < at->out_width; column++, y++) {
                int top = row * at->stride_y - at->pad_y, left = column * at->stride_x - at->pad_x;
                int bottom = top + at->kernel_height, right = left + at->kernel_width, found = 0;
                *y = 0;
                for (int at_y = top < 0 ? 0 : top; at_y < bottom && at_y < at->height; at_y++)
                    for (int at_x = left < 0 ? 0 : left; at_x < right && at_x < at->width; at_x++) {
                        X_t value = x[at_y * at->width + at_x];
                        *y = found && *y > value ? *y : value;
                        found = 1;
                    }
            }
}

static sum_t window_sum_X(const X_t *plane, const window_t *at, int row, int column)
{
    int top = row * at->stride_y - at->pad_y, left = column * at->stride_x - at->pad_x;
    int bottom = top + at->kernel_height, right = left + at->kernel_width;
    sum_t sum = 0;
    for (int at_y = top < 0 ? 0 : top; at_y < bottom && at_y < at->height; at_y++)
        for (int at_x = left < 0 ? 0 : left; at_x < right && at_x < at->width; at_x++)
            sum += plane[at_y * at->width + at_x];
    return sum;
}

static void copy_X(const X_t *x, X_t *y, int size)
{
    for (int at = 0; at < size; at++)
        y[at] = x[at];
}

static void fill_X(X_t *x, int size, X_t value)
{
    for (; size >= 4; size -= 4, x += 4)
        x[0] = x[1] = x[2] = x[3] = value;
    for (; size > 0; size--)
        *x++ = value;
}

/* A value with other axes: rows of `length` elements that are `step` apart, and the axes that tell where rows begin. */
typedef struct {
    int32_t first, rows, length, step, axes, sides[7], steps[7];
} view_t;

static int32_t row_start(const view_t *at, int32_t row)
{
    int32_t place = at->first;
    for (int32_t axis = at->axes - 1; axis >= 0; axis--) {
        place += row % at->sides[axis] * at->steps[axis];
        row /= at->sides[axis];
    }
    return place;
}

static void move_X(const X_t *x, X_t *y, const view_t *at)
{
    for (int32_t row = 0; row < at->rows; row++) {
        const X_t *from = x + row_start(at, row);
        for (int32_t place = 0; place < at->length; place++)
            *y++ = from[place * at->step];
    }
}
