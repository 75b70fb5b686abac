/* Fused multiply-adds would round differently. GCC needs -std=c99 or -ffp-contract=off. */
#ifdef __clang__
#pragma STDC FP_CONTRACT OFF
#endif

/* A convolution of three axes, or a linear layer: windows of one value. */
struct tl_float_convolution {
    /* `inputs` and `outputs` are the channels of a group. */
    int32_t images, groups, inputs, outputs, transposed;
    int32_t from[3], to[3];
    struct tl_window windows[3];
    /* Distance of channels and of neighbours on each axis, in values. */
    int32_t from_steps[4], to_steps[4];
    /* Terms are added in the order [tap, channel], or else [channel, tap], in blocks of this number:
       sums depend on it. */
    int32_t by_taps, block;
    /* For each group, panels of four output channels, and of one for the rest: [panel, term, output
       channel]. */
    const float *weights;
    /* Of each output channel, or null. */
    const float *bias;
};

/* Adds the products of rows of values with the weights of one or four channels. The first steps are
   those of rows, the second those inside of rows. */
static void tl_add_products(const float *values, const int32_t steps[2], const float *weights,
                            const int32_t weight_steps[2], int32_t rows, int32_t count,
                            int32_t width, float sums[4])
{
    float a = sums[0], b = sums[1], c = sums[2], d = sums[3];
    int32_t step = steps[1], weight_step = weight_steps[1], left;
    for (; rows > 0; rows--) {
        const float *value = values, *weight = weights;
        if (width == 4) {
            for (left = count; left > 0; left--) {
                float one = *value;
                a += one * weight[0];
                b += one * weight[1];
                c += one * weight[2];
                d += one * weight[3];
                value += step;
                weight += weight_step;
            }
        } else {
            for (left = count; left > 0; left--) {
                a += *value * *weight;
                value += step;
                weight += weight_step;
            }
        }
        if (rows > 1) {
            values += steps[0];
            weights += weight_steps[0];
        }
    }
    sums[0] = a;
    sums[1] = b;
    sums[2] = c;
    sums[3] = d;
}

/* Adds the sum of a block to the total. */
static void tl_end_block(float totals[4], float sums[4])
{
    int32_t at;
    for (at = 0; at < 4; at++) {
        totals[at] = sums[at] + totals[at];
        sums[at] = 0;
    }
}

/* Computes one or four channels of an output value. */
static void tl_convolve_panel(const struct tl_float_convolution *c, const struct tl_taps taps[3],
                              const float *input, const float *weights, int32_t width,
                              float totals[4])
{
    const struct tl_window *windows = c->windows;
    const int32_t *from = c->from_steps;
    int32_t row = windows[2].kernel, plane = windows[1].kernel * row;
    int32_t count = windows[0].kernel * plane, limit = c->block, channel, z, y, x;
    float sums[4] = {0, 0, 0, 0};
    if (c->by_taps) {
        const int32_t steps[2] = {0, from[0]};
        const int32_t weight_steps[2] = {0, width};
        for (z = 0; z < taps[0].count; z++) {
            for (y = 0; y < taps[1].count; y++) {
                int32_t above = (taps[0].first + z * taps[0].by) * plane
                    + (taps[1].first + y * taps[1].by) * row;
                int32_t start = z * taps[0].move * from[1] + y * taps[1].move * from[2];
                for (x = 0; x < taps[2].count; x++) {
                    int32_t term = (above + taps[2].first + x * taps[2].by) * c->inputs;
                    const float *values = input + start + x * taps[2].move * from[3];
                    for (channel = 0; channel < c->inputs;) {
                        int32_t left = c->inputs - channel;
                        for (; term + channel >= limit; limit += c->block)
                            tl_end_block(totals, sums);
                        if (left > limit - term - channel)
                            left = limit - term - channel;
                        tl_add_products(values + channel * from[0], steps,
                                        weights + (term + channel) * width, weight_steps, 1, left,
                                        width, sums);
                        channel += left;
                    }
                }
            }
        }
    } else if (taps[1].count > 0 && taps[2].count > 0) {
        const int32_t steps[2] = {taps[1].move * from[2], taps[2].move * from[3]};
        const int32_t weight_steps[2] = {taps[1].by * row * width, taps[2].by * width};
        int32_t first = taps[1].first * row + taps[2].first;
        for (channel = 0; channel < c->inputs; channel++) {
            for (; channel * count >= limit; limit += c->block)
                tl_end_block(totals, sums);
            for (z = 0; z < taps[0].count; z++) {
                int32_t tap = (taps[0].first + z * taps[0].by) * plane + first;
                tl_add_products(input + channel * from[0] + z * taps[0].move * from[1], steps,
                                weights + (channel * count + tap) * width, weight_steps,
                                taps[1].count, taps[2].count, width, sums);
            }
        }
    }
    tl_end_block(totals, sums);
}

static void tl_convolve_float(const struct tl_float_convolution *c, const float *input, float *out)
{
    const int32_t *from = c->from_steps, *to = c->to_steps;
    int32_t terms = c->inputs * c->windows[0].kernel * c->windows[1].kernel * c->windows[2].kernel;
    int32_t image, z, y, x, group, channel, at;
    for (image = 0; image < c->images; image++) {
        for (z = 0; z < c->to[0]; z++) {
            for (y = 0; y < c->to[1]; y++) {
                for (x = 0; x < c->to[2]; x++) {
                    struct tl_taps taps[3];
                    const float *weights = c->weights, *pixel = input;
                    float *result = out + z * to[1] + y * to[2] + x * to[3];
                    taps[0] = TL_TAPS(c, &c->windows[0], z, c->from[0]);
                    taps[1] = TL_TAPS(c, &c->windows[1], y, c->from[1]);
                    taps[2] = TL_TAPS(c, &c->windows[2], x, c->from[2]);
                    for (at = 0; at < 3; at++)
                        pixel += taps[at].start * from[at + 1];
                    for (group = 0; group < c->groups; group++) {
                        for (channel = 0; channel < c->outputs;) {
                            int32_t width = c->outputs - channel < 4 ? 1 : 4;
                            int32_t first = group * c->outputs + channel;
                            float totals[4] = {0, 0, 0, 0};
                            for (at = 0; c->bias && at < width; at++)
                                totals[at] = c->bias[first + at];
                            tl_convolve_panel(c, taps, pixel + group * c->inputs * from[0], weights,
                                              width, totals);
                            for (at = 0; at < width; at++)
                                result[(first + at) * to[0]] = totals[at];
                            weights += terms * width;
                            channel += width;
                        }
                    }
                }
            }
        }
        input += c->from[0] * c->from[1] * c->from[2] * c->groups * c->inputs;
        out += c->to[0] * c->to[1] * c->to[2] * c->groups * c->outputs;
    }
}
