struct tl_float_pooling {
    /* Planes of channels-first images count as images of one channel. */
    int32_t images;
    struct tl_image from, to;
    struct tl_window down, across;
};

static void tl_max_pool_float(const struct tl_float_pooling *p, const float *input, float *out)
{
    int32_t image, row, column, channel, y, x;
    for (image = 0; image < p->images; image++) {
        for (row = 0; row < p->to.rows; row++) {
            struct tl_taps down = tl_taps_of(&p->down, row, p->from.rows);
            for (column = 0; column < p->to.columns; column++) {
                struct tl_taps across = tl_taps_of(&p->across, column, p->from.columns);
                for (channel = 0; channel < p->to.channels; channel++) {
                    float largest = -HUGE_VALF;
                    for (y = 0; y < down.count; y++) {
                        int32_t pixel = (down.start + y * down.move) * p->from.columns;
                        int32_t at = (pixel + across.start) * p->from.channels + channel;
                        for (x = 0; x < across.count; x++) {
                            /* NaN propagates. */
                            if (input[at] > largest || input[at] != input[at])
                                largest = input[at];
                            at += across.move * p->from.channels;
                        }
                    }
                    *out++ = largest;
                }
            }
        }
        input += p->from.rows * p->from.columns * p->from.channels;
    }
}
