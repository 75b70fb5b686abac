struct tl_depthwise {
    /* Each input channel has `multiplier` output channels. */
    int32_t images, multiplier;
    struct tl_image from, to;
    struct tl_window down, across;
    int32_t offset;
    /* [row, column, output channel] */
    const int8_t *weights;
    struct tl_results results;
};

/* The sums of one channel, or of four, for an output pixel. `input` and `weights` begin with the
   first tap. The channels have inputs `step` apart. */
static void tl_depthwise_channels(const struct tl_depthwise *c, const struct tl_taps *down,
                                  const struct tl_taps *across, const int8_t *input,
                                  const int8_t *weights, int32_t channels, int32_t step,
                                  uint32_t sums[4])
{
    int32_t down_step = down->move * c->from.columns * c->from.channels;
    int32_t across_step = across->move * c->from.channels, y, x;
    uint32_t offset = (uint32_t)c->offset, p = 0, q = 0, r = 0, s = 0;
    for (y = 0; y < down->count; y++) {
        const int8_t *values = input + y * down_step;
        const int8_t *taps = weights + y * c->across.kernel * c->to.channels;
        for (x = across->count; x > 0; x--) {
            p += ((uint32_t)values[0] + offset) * (uint32_t)taps[0];
            if (channels == 4) {
                q += ((uint32_t)values[step] + offset) * (uint32_t)taps[1];
                r += ((uint32_t)values[2 * step] + offset) * (uint32_t)taps[2];
                s += ((uint32_t)values[3 * step] + offset) * (uint32_t)taps[3];
            }
            if (x > 1) {
                values += across_step;
                taps += c->to.channels;
            }
        }
    }
    sums[0] = p;
    sums[1] = q;
    sums[2] = r;
    sums[3] = s;
}

static void tl_convolve_depthwise(const struct tl_depthwise *c, const int8_t *input, int8_t *out)
{
    int32_t multiplier = c->multiplier, image, row, column, channel, at;
    /* Four channels have four inputs, or share one. */
    int32_t step = multiplier == 1, together = step || multiplier % 4 == 0 ? 4 : 1;
    for (image = 0; image < c->images; image++) {
        for (row = 0; row < c->to.rows; row++) {
            struct tl_taps down = tl_taps_of(&c->down, row, c->from.rows);
            for (column = 0; column < c->to.columns; column++) {
                struct tl_taps across = tl_taps_of(&c->across, column, c->from.columns);
                int32_t pixel = down.start * c->from.columns + across.start;
                int32_t tap = down.first * c->across.kernel + across.first;
                const int8_t *values = input + pixel * c->from.channels;
                const int8_t *weights = c->weights + tap * c->to.channels;
                for (channel = 0; channel < c->to.channels;) {
                    int32_t from = step ? channel : channel / multiplier;
                    int32_t count = c->to.channels - channel < together ? 1 : together;
                    uint32_t sums[4];
                    tl_depthwise_channels(c, &down, &across, values + from, weights + channel,
                                          count, step, sums);
                    for (at = 0; at < count; at++, channel++)
                        out[channel] = tl_result(&c->results, channel, sums[at]);
                }
                out += c->to.channels;
            }
        }
        input += c->from.rows * c->from.columns * c->from.channels;
    }
}
