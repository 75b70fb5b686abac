/* A depthwise convolution with a kernel of 3 by 3 values: each channel is copied to a padded image
   of 16-bit values, of which two neighbours are computed together. */
struct tl_packed_depthwise {
    int32_t images, stride;
    struct tl_image from, to;
    /* Rows above and columns before the input; rows and columns of the padded image, and its
       padding. */
    int32_t above, before, rows, columns, value;
    int32_t zero;
    /* Bias, multiplier and shift of each channel. */
    const int32_t *channels;
    /* [channel, row, column] */
    const int8_t *weights;
};

/* The product of the lower value of `a` and the upper one of `b`. */
static int32_t tl_add_low_high(int32_t a, int32_t b, int32_t sum)
{
#ifdef TL_DSP
    return __smlabt(a, b, sum);
#else
    int32_t product = (int16_t)((uint32_t)a & 0xffff) * (int16_t)((uint32_t)b >> 16);
    return (int32_t)((uint32_t)sum + (uint32_t)product);
#endif
}

/* Two neighbouring values as a pair. */
static int32_t tl_pair(const int16_t *values)
{
#ifdef TL_DSP
    int32_t pair;
    memcpy(&pair, values, sizeof pair);
    return pair;
#else
    return (int32_t)((uint32_t)(uint16_t)values[0] | (uint32_t)(uint16_t)values[1] << 16);
#endif
}

/* Adds the products of a row of the padded image and of the kernel, for two outputs. `first` is the
   pair of the first two weights, `last` that of the last two. */
static void tl_two_sums(const int16_t *plane, int32_t stride, int32_t first, int32_t last,
                        int32_t *one, int32_t *two)
{
    int32_t a = tl_pair(plane), b = tl_pair(plane + 2);
    *one = tl_add_low_high(b, last, tl_add_pairs(a, first, *one));
    if (stride == 1)
        *two = tl_add_pairs(b, last, tl_add_low_high(first, a, *two));
    else
        *two = tl_add_low_high(tl_pair(plane + 4), last, tl_add_pairs(b, first, *two));
}

static void tl_convolve_plane(const struct tl_packed_depthwise *c, const int16_t *plane,
                              const int32_t *channel, const int8_t *weights, int8_t *out)
{
    int32_t bias = channel[0], multiplier = channel[1], shift = channel[2];
    int32_t rounding = tl_rounding(c->zero, shift), channels = c->to.channels;
    int32_t stride = c->stride, row, left, at, pairs[6];
    for (at = 0; at < 3; at++, weights += 3) {
        uint32_t middle = (uint32_t)weights[1];
        pairs[2 * at] = (int32_t)(((uint32_t)weights[0] & 0xffff) | middle << 16);
        pairs[2 * at + 1] = (int32_t)((middle & 0xffff) | (uint32_t)weights[2] << 16);
    }
    for (row = 0; row < c->to.rows; row++, plane += stride * c->columns) {
        const int16_t *first = plane, *second = first + c->columns, *third = second + c->columns;
        for (left = c->to.columns; left > 0; left -= 2) {
            int32_t one = bias, two = bias;
            tl_two_sums(first, stride, pairs[0], pairs[1], &one, &two);
            tl_two_sums(second, stride, pairs[2], pairs[3], &one, &two);
            tl_two_sums(third, stride, pairs[4], pairs[5], &one, &two);
            *out = (int8_t)tl_requantized(one, multiplier, shift, rounding);
            out += channels;
            if (left > 1) {
                *out = (int8_t)tl_requantized(two, multiplier, shift, rounding);
                out += channels;
            }
            first += 2 * stride;
            second += 2 * stride;
            third += 2 * stride;
        }
    }
}

static void tl_depthwise_packed(const struct tl_packed_depthwise *c, const int8_t *input,
                                int8_t *out, int16_t *plane)
{
    int32_t image, channel, row, column;
    for (row = 0; row < c->rows * c->columns; row++)
        plane[row] = (int16_t)c->value;
    for (image = 0; image < c->images; image++) {
        for (channel = 0; channel < c->to.channels; channel++) {
            const int8_t *values = input + channel;
            int16_t *inside = plane + c->above * c->columns + c->before;
            for (row = 0; row < c->from.rows; row++, inside += c->columns) {
                for (column = 0; column < c->from.columns; column++) {
                    inside[column] = *values;
                    values += c->from.channels;
                }
            }
            tl_convolve_plane(c, plane, c->channels + 3 * channel, c->weights + 9 * channel,
                              out + channel);
        }
        input += c->from.rows * c->from.columns * c->from.channels;
        out += c->to.rows * c->to.columns * c->to.channels;
    }
}
