/* Images are channels last. */
struct tl_image {
    int32_t rows, columns, channels;
};
