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

static void tl_convolve_depthwise(const struct tl_depthwise *c, const int8_t *input, int8_t *out)
{
    int32_t image, row, column, channel, y, x, at;
    for (image = 0; image < c->images; image++) {
        for (row = 0; row < c->to.rows; row++) {
            struct tl_taps down = tl_taps_of(&c->down, row, c->from.rows);
            for (column = 0; column < c->to.columns; column++) {
                struct tl_taps across = tl_taps_of(&c->across, column, c->from.columns);
                for (channel = 0; channel < c->to.channels;) {
                    int32_t left = c->to.channels - channel;
                    int32_t count = c->multiplier == 1 && left >= 4 ? 4 : 1;
                    uint32_t sums[4] = {0, 0, 0, 0};
                    for (y = 0; y < down.count; y++) {
                        int32_t from = (down.start + y * down.move) * c->from.columns;
                        int32_t tap = (down.first + y) * c->across.kernel + across.first;
                        for (x = 0; x < across.count; x++, tap++) {
                            int32_t pixel = from + across.start + x * across.move;
                            const int8_t *values = input + pixel * c->from.channels
                                + (c->multiplier == 1 ? channel : channel / c->multiplier);
                            const int8_t *weights = c->weights + tap * c->to.channels + channel;
                            for (at = 0; at < count; at++)
                                sums[at] += ((uint32_t)values[at] + (uint32_t)c->offset)
                                    * (uint32_t)weights[at];
                        }
                    }
                    for (at = 0; at < count; at++, channel++)
                        out[channel] = tl_result(&c->results, channel, sums[at]);
                }
                out += c->to.channels;
            }
        }
        input += c->from.rows * c->from.columns * c->from.channels;
    }
}
