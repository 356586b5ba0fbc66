// Answers launch configurations read from stdin with NVIDIA's own occupancy calculator (cuda_occupancy.h).
//
// One configuration is 18 int64, one answer is 10 int64, both in the order of the lines below.
#include <cuda_occupancy.h>

#include <cstdint>
#include <cstdio>

int main() {
    int64_t in[18];
    while (fread(in, sizeof in, 1, stdin) == 1) {
        cudaOccDeviceProp device;
        device.computeMajor = (int)in[0];
        device.computeMinor = (int)in[1];
        device.maxThreadsPerBlock = (int)in[2];
        device.maxThreadsPerMultiprocessor = (int)in[3];
        device.regsPerBlock = (int)in[4];
        device.regsPerMultiprocessor = (int)in[5];
        device.warpSize = (int)in[6];
        device.sharedMemPerBlock = (size_t)in[7];
        device.sharedMemPerMultiprocessor = (size_t)in[8];
        device.numSms = (int)in[9];
        device.sharedMemPerBlockOptin = (size_t)in[10];
        device.reservedSharedMemPerBlock = (size_t)in[11];

        cudaOccFuncAttributes kernel;
        kernel.maxThreadsPerBlock = device.maxThreadsPerBlock;
        kernel.numRegs = (int)in[12];
        kernel.sharedSizeBytes = (size_t)in[13];
        kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
        kernel.maxDynamicSharedSizeBytes = (size_t)in[14];  // a launch that happened has opted in to what it uses
        kernel.numBlockBarriers = (int)in[15];

        cudaOccDeviceState state;
        state.carveoutConfig = (int)in[16];  // percent, -1: no preference

        cudaOccResult result = {};
        const cudaOccError status =
            cudaOccMaxActiveBlocksPerMultiprocessor(&result, &device, &kernel, &state, (int)in[17], (size_t)in[14]);
        const int64_t out[9] = {status,
                                result.activeBlocksPerMultiprocessor,
                                result.limitingFactors,
                                result.blockLimitWarps,
                                result.blockLimitBlocks,
                                result.blockLimitRegs,
                                result.blockLimitSharedMem,
                                result.blockLimitBarriers,
                                result.allocatedRegistersPerBlock};
        const int64_t shared = (int64_t)result.allocatedSharedMemPerBlock;
        if (fwrite(out, sizeof out, 1, stdout) != 1 || fwrite(&shared, sizeof shared, 1, stdout) != 1) return 1;
    }
    return 0;
}
