struct tl_linear {
    int32_t rows, depth, channels, offset, weight_offset;
    /* [output feature, input feature] */
    const int8_t *weights;
    struct tl_results results;
};

static void tl_multiply(const struct tl_linear *c, const int8_t *input, int8_t *out)
{
    int32_t row, channel, at;
    for (row = 0; row < c->rows; row++) {
        /* The part of the sums that the offset of the weights contributes. */
        uint32_t added = 0;
        if (c->weight_offset != 0) {
            for (at = 0; at < c->depth; at++)
                added += (uint32_t)input[at] + (uint32_t)c->offset;
            added *= (uint32_t)c->weight_offset;
        }
        for (channel = 0; channel < c->channels;) {
            const int8_t *weights = c->weights + channel * c->depth;
            int32_t count = c->channels - channel < 4 ? 1 : 4;
            uint32_t sums[4] = {0, 0, 0, 0};
            if (count == 4)
                tl_dot_four(input, c->offset, weights, c->depth, c->depth, sums);
            else
                sums[0] = tl_dot(input, c->offset, weights, c->depth);
            for (at = 0; at < count; at++, channel++)
                out[channel] = tl_result(&c->results, channel, sums[at] + added);
        }
        input += c->depth;
        out += c->channels;
    }
}
