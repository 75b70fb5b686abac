/* A window over an axis: tap `t` of output `o` reads input `o * stride - padding + t * dilation`.
   In transposed convolutions, it reads `(o + padding - t * dilation) / stride`, if that is an
   integer. */
struct tl_window {
    int32_t kernel, stride, padding, dilation;
};

/* The taps of an output that are inside the input: `first`, `first + by` and so on. They read the
   inputs `start`, `start + move` and so on. */
struct tl_taps {
    int32_t first, by, count, start, move;
};

static struct tl_taps tl_taps_of(const struct tl_window *window, int32_t at, int32_t size)
{
    struct tl_taps taps = {0, 1, 0, 0, 0};
    int32_t dilation = window->dilation;
    int32_t first = 0, start = at * window->stride - window->padding;
    taps.move = dilation;
    if (start < 0) {
        first = dilation == 1 ? -start : (-start + dilation - 1) / dilation;
        start += first * dilation;
    }
    if (start < size && first < window->kernel) {
        int32_t count = dilation == 1 ? size - start : (size - 1 - start) / dilation + 1;
        taps.first = first;
        taps.count = count < window->kernel - first ? count : window->kernel - first;
        taps.start = start;
    }
    return taps;
}
