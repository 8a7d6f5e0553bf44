// A program of several threads, for replays of what was recorded of it: crowd THREADS STEPS SEED
// turns|together. Each thread allocates, works on its own stream and on a common one, waits now and then, and
// frees its own blocks and those of others. In turns, one thread runs at a time for some steps, as a
// training's forward and backward threads do; what they do is the same in every run. Together, all run at
// once.
#include <cuda.h>

#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

namespace {

struct Block {
  CUdeviceptr address;
  std::size_t bytes;
};

// A fault of the driver, or of the library, ends the program at once.
void check(CUresult result) {
  if (result == CUDA_SUCCESS) return;
  std::fprintf(stderr, "error %d\n", static_cast<int>(result));
  std::_Exit(3);
}

class Crowd {
 public:
  Crowd(unsigned threads, unsigned steps, unsigned seed, bool in_turns)
      : threads_(threads), steps_(steps), seed_(seed), in_turns_(in_turns), has_left_(threads) {
    CUdevice device = 0;
    check(cuInit(0));
    check(cuDeviceGet(&device, 0));
    check(cuDevicePrimaryCtxRetain(&context_, device));
    check(cuCtxSetCurrent(context_));
    check(cuStreamCreate(&common_, CU_STREAM_NON_BLOCKING));
  }

  // A turn passes on when its thread is gone: what a thread does at its end is part of the turn.
  void run() {
    std::vector<std::thread> all;
    for (unsigned i = 0; i < threads_; ++i) all.emplace_back([this, i] { live(i); });
    for (unsigned gone = 0; gone < threads_; ++gone) {
      const unsigned leaver = wait_for_leaver(gone);
      all[leaver].join();
      pass_on(leaver);
    }
  }

 private:
  void live(unsigned me) {
    static constexpr std::size_t kSizes[] = {300, 5000, 70000, 900000, 4 << 20, 23 << 20};
    std::mt19937 random(seed_ * 64 + me);
    const auto below = [&](unsigned most) { return static_cast<unsigned>(random() % most); };
    wait_for_turn(me);
    CUstream own = nullptr;
    check(cuCtxSetCurrent(context_));
    check(cuStreamCreate(&own, CU_STREAM_NON_BLOCKING));
    for (unsigned step = 0; step < steps_; ++step) {
      Block block{};
      if (below(100) < 47 && take(below(1 << 20), &block)) {
        check(cuMemFree(block.address));
      } else {
        block.bytes = kSizes[below(below(2) != 0 ? 4 : 6)] + below(200);
        check(cuMemAlloc(&block.address, block.bytes));
        if (below(100) < 60)
          check(cuMemsetD8Async(block.address, 1, block.bytes, below(2) != 0 ? own : common_));
        const std::lock_guard hold(lock_);
        blocks_.push_back(block);
      }
      if (below(100) < 2) check(below(2) != 0 ? cuStreamSynchronize(own) : cuCtxSynchronize());
      if (below(100) < 5) {
        pass_on(me);
        wait_for_turn(me);
      }
    }
    const std::lock_guard hold(lock_);
    has_left_[me] = true;
    leavers_.push_back(me);
    passed_.notify_all();
  }

  unsigned wait_for_leaver(unsigned gone) {
    std::unique_lock hold(lock_);
    passed_.wait(hold, [&] { return leavers_.size() > gone; });
    return leavers_[gone];
  }

  // A block of any thread's.
  bool take(unsigned which, Block* out) {
    const std::lock_guard hold(lock_);
    if (blocks_.empty()) return false;
    std::swap(blocks_[which % blocks_.size()], blocks_.back());
    *out = blocks_.back();
    blocks_.pop_back();
    return true;
  }

  void wait_for_turn(unsigned me) {
    if (!in_turns_) return;
    std::unique_lock hold(lock_);
    passed_.wait(hold, [&] { return turn_ == me; });
  }
  void pass_on(unsigned me) {
    if (!in_turns_) return;
    const std::lock_guard hold(lock_);
    for (unsigned i = 1; i < threads_ && turn_ == me; ++i) {
      if (!has_left_[(me + i) % threads_]) turn_ = (me + i) % threads_;
    }
    passed_.notify_all();
  }

  const unsigned threads_;
  const unsigned steps_;
  const unsigned seed_;
  const bool in_turns_;
  CUcontext context_ = nullptr;
  CUstream common_ = nullptr;
  std::mutex lock_;
  std::condition_variable passed_;
  std::vector<Block> blocks_;
  std::vector<char> has_left_;
  std::vector<unsigned> leavers_;
  unsigned turn_ = 0;
};

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) return 2;
  const auto number = [&](int i) { return static_cast<unsigned>(std::strtoul(arguments[i], nullptr, 10)); };
  Crowd(number(1), number(2), number(3), std::strcmp(arguments[4], "turns") == 0).run();
  return 0;
}
