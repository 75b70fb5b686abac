/* Sizes and positions are in memory order. */
struct tl_padding {
    int32_t from[4], to[4], before[4];
    int8_t value;
};

static void tl_pad(const struct tl_padding *p, const int8_t *input, int8_t *out)
{
    const int32_t *from = p->from, *to = p->to;
    int32_t a, b, c;
    memset(out, p->value, (size_t)(to[0] * to[1] * to[2] * to[3]));
    for (a = 0; a < from[0]; a++) {
        for (b = 0; b < from[1]; b++) {
            for (c = 0; c < from[2]; c++) {
                int32_t row = (a + p->before[0]) * to[1] + b + p->before[1];
                row = row * to[2] + c + p->before[2];
                memcpy(out + row * to[3] + p->before[3], input, (size_t)from[3]);
                input += from[3];
            }
        }
    }
}
