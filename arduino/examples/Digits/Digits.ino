// Recognizes a handwritten digit of 8 × 8 pixels.
//
// digits.h: torchlet convert digits.pte -o digits.h

#include <TorchletArduino.h>

#include "digits.h"

TorchletModel<5 * 1024> model;

// Darkness of each pixel, from 0 to 16.
const uint8_t PICTURE[8][8] = {
    {0, 0, 7, 16, 14, 3, 0, 0},  {0, 0, 9, 14, 11, 15, 0, 0},   {0, 0, 1, 5, 0, 15, 5, 0},
    {0, 0, 0, 0, 0, 16, 5, 0},   {0, 0, 0, 0, 3, 16, 4, 0},     {0, 0, 0, 1, 12, 14, 1, 0},
    {0, 0, 5, 12, 16, 16, 14, 1}, {0, 0, 8, 16, 14, 10, 13, 3},
};

void setup()
{
    Serial.begin(115200);
    if (!model.begin(digits_program, digits_kernels)) {
        Serial.println(model.error());
        return;
    }
    Serial.print("memory: ");
    Serial.println(static_cast<unsigned long>(model.memory_used()));
}

void loop()
{
    float *pixels = model.input<float>(0);
    if (pixels) {
        for (int at = 0; at < 64; at++)
            pixels[at] = PICTURE[at / 8][at % 8] / 16.0f;
    }
    size_t count = 0;
    const float *scores = model.run() ? model.output<float>(0, &count) : NULL;
    if (!scores) {
        Serial.println(model.error());
    } else {
        size_t best = 0;
        for (size_t digit = 0; digit < count; digit++) {
            Serial.println(scores[digit], 4);
            if (scores[digit] > scores[best])
                best = digit;
        }
        Serial.print("digit: ");
        Serial.println(static_cast<unsigned long>(best));
    }
    delay(1000);
}
