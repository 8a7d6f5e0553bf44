// The kernels of every victim, with the names and parameters that the simulated driver knows.
// They work byte by byte on purpose: a block may have any size and a wrong byte must be counted once.
// kernels.ptx.inc is made from this file by scripts/make-ptx and checked in, so building needs no nvcc.

using Bytes = unsigned long long;

extern "C" __global__ void fill(Bytes p, size_t bytes, unsigned value) {
  unsigned char* memory = reinterpret_cast<unsigned char*>(p);
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < bytes; i += step)
    memory[i] = static_cast<unsigned char>(value);
}

// Adds the number of wrong bytes to the first of four words. The others are of the first wrong byte that any
// check met: where it is, what it holds and what it should hold.
extern "C" __global__ void check(Bytes p, size_t bytes, unsigned value, Bytes verdict) {
  const unsigned char* memory = reinterpret_cast<const unsigned char*>(p);
  const size_t step = static_cast<size_t>(gridDim.x) * blockDim.x;
  unsigned long long wrong = 0, where = 0, found = 0;
  for (size_t i = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < bytes; i += step) {
    const unsigned char byte = memory[i];
    if (byte == static_cast<unsigned char>(value)) continue;
    if (wrong++ == 0) {
      where = p + i;
      found = byte;
    }
  }
  if (wrong == 0) return;
  unsigned long long* const words = reinterpret_cast<unsigned long long*>(verdict);
  if (atomicCAS(words + 1, 0ull, where) == 0) {
    words[2] = found;
    words[3] = value & 0xff;
  }
  __threadfence_system();
  atomicAdd(words, wrong);
}

extern "C" __global__ void spin(unsigned long long ns) {
  unsigned long long begin, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(begin));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (now - begin < ns);
}

// Waits for the host, another stream or another device to write the word. Lives outside of any order: whoever
// launches it must know that the word will come.
extern "C" __global__ void await(Bytes word, unsigned value) {
  const volatile unsigned* memory = reinterpret_cast<const volatile unsigned*>(word);
  while (*memory != value) {
  }
  __threadfence_system();
}

// Needs 64 KiB of stack in every thread: the driver has to find local memory for all that can be resident.
extern "C" __global__ void deep(Bytes out, unsigned value) {
  volatile unsigned stack[16384];
  for (unsigned i = 0; i < 16384; ++i) stack[i] = value + i;
  unsigned sum = 0;
  for (unsigned i = 0; i < 16384; ++i) sum += stack[(i * 7919 + value) % 16384] - value - i;
  if (threadIdx.x == 0 && sum != value) *reinterpret_cast<unsigned char*>(out) = 1;
}

// Takes memory from the device heap and uses it.
extern "C" __global__ void heap(Bytes out, unsigned value) {
  volatile unsigned* const taken = static_cast<volatile unsigned*>(malloc(4096));
  if (taken == nullptr) return;
  taken[threadIdx.x] = value;
  if (threadIdx.x == 0 && taken[0] == value) *reinterpret_cast<unsigned char*>(out) = 1;
  free(const_cast<unsigned*>(taken));
}
