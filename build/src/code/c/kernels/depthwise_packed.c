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

/* Parameters of a channel: pairs of the first two and of the last two weights of each row, bias,
   multiplier, shift and rounding; and distances of rows and of results. */
struct tl_plane {
    int32_t pairs[6], bias, multiplier, shift, rounding, columns, channels;
};

/* Adds the products of a row of the padded image and of the kernel, for two outputs. */
static TL_REPEATED void tl_two_sums(const int16_t *values, const int32_t pairs[2], int32_t stride,
                                    int32_t *one, int32_t *two)
{
    int32_t a = tl_pair(values), b = tl_pair(values + 2), first = pairs[0], last = pairs[1];
    *one = tl_add_low_high(b, last, tl_add_pairs(a, first, *one));
    if (stride == 1)
        *two = tl_add_pairs(b, last, tl_add_low_high(first, a, *two));
    else
        *two = tl_add_low_high(tl_pair(values + 4), last, tl_add_pairs(b, first, *two));
}

/* Computes a row of the output. Two neighbours share values of the padded image. */
static TL_REPEATED void tl_plane_row(const struct tl_plane *p, int32_t stride,
                                     const int16_t *values, int32_t left, int8_t *out)
{
    for (; left > 0; left -= 2) {
        int32_t one = p->bias, two = one;
        const int16_t *at = values;
        tl_two_sums(at, p->pairs, stride, &one, &two);
        at += p->columns;
        tl_two_sums(at, p->pairs + 2, stride, &one, &two);
        at += p->columns;
        tl_two_sums(at, p->pairs + 4, stride, &one, &two);
        *out = (int8_t)tl_requantized(one, p->multiplier, p->shift, p->rounding);
        out += p->channels;
        if (left > 1)
            *out = (int8_t)tl_requantized(two, p->multiplier, p->shift, p->rounding);
        out += p->channels;
        values += 2 * stride;
    }
}

/* The same for constant strides. */
static TL_APART void tl_plane_by_one(const struct tl_plane *p, const int16_t *values, int32_t left,
                                     int8_t *out)
{
    tl_plane_row(p, 1, values, left, out);
}

static TL_APART void tl_plane_by_two(const struct tl_plane *p, const int16_t *values, int32_t left,
                                     int8_t *out)
{
    tl_plane_row(p, 2, values, left, out);
}

static void tl_convolve_plane(const struct tl_packed_depthwise *c, const int16_t *plane,
                              const int32_t *channel, const int8_t *weights, int8_t *out)
{
    struct tl_plane p;
    int32_t at, columns = c->to.columns;
    p.bias = channel[0];
    p.multiplier = channel[1];
    p.shift = channel[2];
    p.rounding = tl_rounding(c->zero, p.shift);
    p.columns = c->columns;
    p.channels = c->to.channels;
    for (at = 0; at < 6; at += 2, weights += 3) {
        uint32_t middle = (uint32_t)weights[1];
        p.pairs[at] = (int32_t)(((uint32_t)weights[0] & 0xffff) | middle << 16);
        p.pairs[at + 1] = (int32_t)((middle & 0xffff) | (uint32_t)weights[2] << 16);
    }
    for (at = 0; at < c->to.rows; at++) {
        if (c->stride == 1)
            tl_plane_by_one(&p, plane, columns, out);
        else
            tl_plane_by_two(&p, plane, columns, out);
        plane += c->stride * c->columns;
        out += columns * p.channels;
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
