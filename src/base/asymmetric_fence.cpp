// See asymmetric_fence.hpp. The rare side decides the form itself if nobody has, so that it never takes a
// fast side without a fence for one that has it.
#include "base/asymmetric_fence.hpp"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/preserve_errno.hpp"

namespace cupool {

namespace {

bool membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

}  // namespace

AsymmetricFence::Form AsymmetricFence::decide() {
  Form form = form_.load(std::memory_order_acquire);
  if (form != Form::kUndecided) return form;
  const Form found =
      membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED) ? Form::kOneSided : Form::kBothSided;
  // Another thread may have been told otherwise, if a filter came in between; the first answer holds.
  return form_.compare_exchange_strong(form, found, std::memory_order_acq_rel) ? found : form;
}

void AsymmetricFence::prepare() {
  const PreserveErrno preserve;
  if (decide() == Form::kOneSided) word_.fetch_and(static_cast<uint8_t>(~kFenced), std::memory_order_relaxed);
}

bool AsymmetricFence::enter_with_fence(std::atomic<bool>& inside) const {
  inside.store(true, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (!is_closed()) return true;
  exit(inside);
  return false;
}

bool AsymmetricFence::order_all_threads() {
  constexpr uint64_t kMoment = 1'000'000;  // nanoseconds
  const PreserveErrno preserve;
  // The fast side's fence, where it has one, does not order our stores before our loads.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const Form form = decide();
  if (form == Form::kBothSided) return true;
  if (form == Form::kOneSided && membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)) return true;
  form_.store(Form::kLost, std::memory_order_relaxed);
  sleep_for(kMoment);
  return false;
}

}  // namespace cupool
