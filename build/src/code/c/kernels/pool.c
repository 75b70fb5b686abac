struct tl_pooling {
    int32_t images;
    struct tl_image from, to;
    struct tl_window down, across;
    /* Of max pooling: bounds of the results. */
    int32_t low, high;
};
