#define TL_TAPS(c, window, at, size)                                                               \
    ((c)->transposed ? tl_transposed_taps(window, at, size) : tl_taps_of(window, at, size))
