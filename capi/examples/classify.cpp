// Loads a program file and runs it on an image, with the names of ExecuTorch's C++ API.
//
//   classify_cpp PROGRAM.pte IMAGE.npy

#include <cstdio>
#include <fstream>
#include <torchlet.hpp>

using namespace torchlet::extension;

int main(int argc, char **argv)
{
    if (argc != 3) {
        std::fprintf(stderr, "usage: %s PROGRAM.pte IMAGE.npy\n", argv[0]);
        return 1;
    }
    float pixels[64];
    std::ifstream file(argv[2], std::ios::binary);
    file.seekg(-static_cast<std::streamoff>(sizeof pixels), std::ios::end);
    if (!file.read(reinterpret_cast<char *>(pixels), sizeof pixels)) {
        std::fprintf(stderr, "%s: not 64 numbers\n", argv[2]);
        return 1;
    }

    Module module(argv[1]);
    const auto result = module.forward(from_blob(pixels, {1, 1, 8, 8}));
    if (!result.ok()) {
        std::fprintf(stderr, "%s: %s\n", argv[1], torchlet::last_error_message());
        return 1;
    }
    const auto logits = result->at(0).toTensor();
    const auto numbers = logits.const_data_ptr<float>();
    int best = 0;
    for (int i = 0; i < logits.numel(); i++) {
        std::printf("logit %d: %f\n", i, static_cast<double>(numbers[i]));
        if (numbers[i] > numbers[best])
            best = i;
    }
    std::printf("class: %d\n", best);
    return 0;
}
