/* Reads inputs of a program from its standard input, and writes the outputs. */

#include HEADER
#include <stdio.h>

int main(void)
{
    static float input[INPUTS], output[OUTPUTS];
    while (fread(input, sizeof input, 1, stdin) == 1) {
        RUN(input, output);
        if (fwrite(output, sizeof output, 1, stdout) != 1)
            return 1;
    }
    return 0;
}
