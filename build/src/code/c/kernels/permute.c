/* A copy to another memory order: sizes of the output, and strides of the input for its axes, both
   in elements of `size` bytes. */
struct tl_permutation {
    int32_t sizes[4], strides[4], size;
};

static void tl_permute(const struct tl_permutation *p, const int8_t *input, int8_t *out)
{
    int32_t a, b, c, d, byte;
    for (a = 0; a < p->sizes[0]; a++) {
        for (b = 0; b < p->sizes[1]; b++) {
            for (c = 0; c < p->sizes[2]; c++) {
                int32_t row = a * p->strides[0] + b * p->strides[1] + c * p->strides[2];
                for (d = 0; d < p->sizes[3]; d++) {
                    const int8_t *from = input + (row + d * p->strides[3]) * p->size;
                    for (byte = 0; byte < p->size; byte++)
                        *out++ = from[byte];
                }
            }
        }
    }
}
