// Programs that hang by themselves, for the simulated driver to say so: one per argument. None may be run on
// a GPU.
//   word      a stream waits for a word that nobody writes, and the program for the stream
//   free      the same, with a free
//   function  a host function waits for the program, which waits for it
//   threads   two threads wait, one for the other, which waits for a stream
//   polls     the program asks again and again whether a stream is done
//   late      no hang: another thread writes the word, long after this one began to wait
//   kept      no hang: the thread that will write what this one waits for is done waiting itself, but is kept
//             from the processor
#include <cuda.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

namespace {

void must(CUresult result, int line) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "hangs: line %d: error %d\n", line, static_cast<int>(result));
  std::_Exit(2);
}
#define MUST(call) must((call), __LINE__)

// Whether the thread has gone to sleep between two looks of its wait in the driver.
bool rests_in_its_wait(int tid) {
  const std::string path = "/proc/self/task/" + std::to_string(tid) + "/syscall";
  std::FILE* const file = std::fopen(path.c_str(), "r");
  if (file == nullptr) return false;
  long number = -1;
  const bool known = std::fscanf(file, "%ld", &number) == 1;
  std::fclose(file);
  return known && (number == SYS_clock_nanosleep || number == SYS_nanosleep);
}

std::atomic<bool> is_kept{false};

// As a busy machine would: for far longer than the driver needs to call two threads hung.
void keep_from_the_processor(int) {
  is_kept = true;
  usleep(100'000);
}

// One word for each: the second thread waits for the first word, and then writes the second.
void keep_the_second_thread(CUcontext context, CUstream stream, CUdeviceptr word, CUdeviceptr other) {
  std::atomic<int> tid{0};
  signal(SIGUSR1, keep_from_the_processor);
  CUstream writer = nullptr;
  MUST(cuStreamCreate(&writer, CU_STREAM_NON_BLOCKING));
  std::thread second([&] {
    MUST(cuCtxSetCurrent(context));
    CUstream answers = nullptr;
    MUST(cuStreamCreate(&answers, CU_STREAM_NON_BLOCKING));
    tid = static_cast<int>(syscall(SYS_gettid));
    MUST(cuStreamSynchronize(stream));
    MUST(cuStreamWriteValue32(answers, other, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
  });
  while (tid == 0 || !rests_in_its_wait(tid)) sched_yield();
  pthread_kill(second.native_handle(), SIGUSR1);
  while (!is_kept) sched_yield();
  MUST(cuStreamWriteValue32(writer, word, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
  while (cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
  }
  MUST(cuStreamWaitValue32(writer, other, 1, CU_STREAM_WAIT_VALUE_EQ));
  MUST(cuStreamSynchronize(writer));
  second.join();
}

}  // namespace

int main(int, char** words) {
  const std::string how = words[1];
  CUcontext context = nullptr;
  CUstream stream = nullptr;
  CUdeviceptr word = 0, other = 0;
  MUST(cuInit(0));
  MUST(cuDevicePrimaryCtxRetain(&context, 0));
  MUST(cuCtxSetCurrent(context));
  MUST(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  MUST(cuMemAlloc(&word, 4));
  MUST(cuMemAlloc(&other, 4));
  MUST(cuMemsetD32(word, 0, 1));
  MUST(cuMemsetD32(other, 0, 1));
  MUST(cuCtxSynchronize());
  static sem_t never;
  sem_init(&never, 0, 0);
  if (how == "function") {
    const CUhostFn wait = [](void*) { sem_wait(&never); };
    MUST(cuLaunchHostFunc(stream, wait, nullptr));
  } else {
    MUST(cuStreamWaitValue32(stream, word, 1, CU_STREAM_WAIT_VALUE_EQ));
  }
  if (how == "free") MUST(cuMemFree(other));
  if (how == "threads") {
    std::thread second([&] {
      MUST(cuCtxSetCurrent(context));
      MUST(cuStreamSynchronize(stream));
    });
    second.join();
  }
  if (how == "kept") keep_the_second_thread(context, stream, word, other);
  while (how == "polls" && cuStreamQuery(stream) == CUDA_ERROR_NOT_READY) {
  }
  if (how == "late") {
    std::thread second([&] {
      MUST(cuCtxSetCurrent(context));
      // By the clock: on a loaded machine a thread that yields may not come back for milliseconds.
      const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(50);
      while (std::chrono::steady_clock::now() < end) sched_yield();
      CUstream writer = nullptr;
      MUST(cuStreamCreate(&writer, CU_STREAM_NON_BLOCKING));
      MUST(cuStreamWriteValue32(writer, word, 1, CU_STREAM_WRITE_VALUE_DEFAULT));
    });
    MUST(cuStreamSynchronize(stream));
    second.join();
  }
  MUST(cuCtxSynchronize());
  std::printf("hangs: it ended\n");
  return 0;
}
