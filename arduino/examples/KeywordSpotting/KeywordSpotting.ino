// Scores the keywords of MLPerf Tiny's keyword spotting for one second of sound.
//
// The input has 49 frames of 10 mel-frequency cepstral coefficients. This sketch fills it with
// numbers; connect a microphone and compute the coefficients to recognize words.
//
// keywords.h: torchlet convert keyword_spotting.pte -o keywords.h

#include <TorchletArduino.h>

#include "keywords.h"

TorchletModel<20 * 1024> model;

void setup()
{
    Serial.begin(115200);
    if (!model.begin(keywords_program, keywords_kernels)) {
        Serial.println(model.error());
        return;
    }
    Serial.print("memory: ");
    Serial.println(static_cast<unsigned long>(model.memory_used()));
}

void loop()
{
    size_t count = 0;
    float *coefficients = model.input<float>(0, &count);
    for (size_t at = 0; coefficients && at < count; at++)
        coefficients[at] = static_cast<float>(static_cast<int>(at * 37 % 101) - 50) / 2.0f;
    unsigned long begin = micros();
    const float *scores = model.run() ? model.output<float>(0, &count) : NULL;
    unsigned long time = micros() - begin;
    if (!scores) {
        Serial.println(model.error());
    } else {
        for (size_t word = 0; word < count; word++)
            Serial.println(scores[word], 4);
        Serial.print("microseconds: ");
        Serial.println(time);
    }
    delay(1000);
}
