/* A convolution: plain, grouped or transposed. */
struct tl_convolution {
    int32_t images, groups, depth, transposed;
    struct tl_image from, to;
    struct tl_window down, across;
    int32_t offset;
    /* [output channel, row, column, input channel of the group] */
    const int8_t *weights;
    struct tl_results results;
};

/* The sums of one channel, or of four, for an output pixel. */
static void tl_convolve_channels(const struct tl_convolution *c, const struct tl_taps *down,
                                 const struct tl_taps *across, const int8_t *input,
                                 const int8_t *weights, int32_t channels, uint32_t sums[4])
{
    int32_t depth = c->depth, row = c->across.kernel * depth, step = c->down.kernel * row;
    /* The taps of a row are contiguous in memory, in one piece. */
    int is_run = c->groups == 1 && across->by == 1 && across->move == 1;
    int32_t pieces = is_run ? across->count != 0 : across->count;
    int32_t length = is_run ? across->count * depth : depth;
    int32_t y, x;
    for (y = 0; y < down->count; y++) {
        int32_t from = (y * down->move * c->from.columns) * c->from.channels;
        const int8_t *values = input + from;
        const int8_t *taps = weights + (down->first + y * down->by) * row + across->first * depth;
        for (x = 0; x < pieces; x++) {
            if (channels == 4)
                tl_dot_four(values, c->offset, taps, step, length, sums);
            else
                sums[0] += tl_dot(values, c->offset, taps, length);
            if (x + 1 < pieces) {
                values += across->move * c->from.channels;
                taps += across->by * depth;
            }
        }
    }
}

static void tl_convolve(const struct tl_convolution *c, const int8_t *input, int8_t *out)
{
    int32_t per_group = c->to.channels / c->groups;
    int32_t step = c->down.kernel * c->across.kernel * c->depth;
    int32_t image, row, column, group, channel;
    for (image = 0; image < c->images; image++) {
        for (row = 0; row < c->to.rows; row++) {
            struct tl_taps down = TL_TAPS(c, &c->down, row, c->from.rows);
            for (column = 0; column < c->to.columns; column++) {
                struct tl_taps across = TL_TAPS(c, &c->across, column, c->from.columns);
                int32_t from = (down.start * c->from.columns + across.start) * c->from.channels;
                for (group = 0; group < c->groups; group++) {
                    const int8_t *values = input + from + group * c->depth;
                    int32_t end = (group + 1) * per_group;
                    for (channel = group * per_group; channel < end;) {
                        const int8_t *weights = c->weights + channel * step;
                        uint32_t sums[4] = {0, 0, 0, 0};
                        int32_t at, count = end - channel < 4 ? 1 : 4;
                        tl_convolve_channels(c, &down, &across, values, weights, count, sums);
                        for (at = 0; at < count; at++, channel++)
                            out[channel] = tl_result(&c->results, channel, sums[at]);
                    }
                }
                out += c->to.channels;
            }
        }
        input += c->from.rows * c->from.columns * c->from.channels;
    }
}
