// Which freed blocks of a context are worth keeping. A dedicated block serves requests of about its own size
// alone, so a program whose sizes never come again would fill the device with what it cannot use. All are
// kept until a request of a new size finds more than a little idle in sizes that have not come again. From
// then on a block is kept if its size has come again: if a request found nothing idle, and a block that was
// given back before would have served it. Others are kept up to a sixteenth of the most that the program had
// at once, and a little of device memory; beyond that a free gives its block back, and waits for its work, as
// the driver's own free does. A request for managed memory of a new size also lets idle blocks go, if nobody
// has to wait for that, where what is held would exceed that most by more than a sixteenth: a program that
// goes on to other sizes holds what it held before. The sizes that were given back are remembered, the last
// kMost of them. Under the lock of the blocks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <set>
#include <utility>

#include "base/bytes.hpp"
#include "dedicated/driver_steps.hpp"

namespace cupool::dedicated {

class Admission {
 public:
  static constexpr size_t kMost = 1024;

  // So many bytes of sizes that have not come again are little, beside a share of the program's own.
  void set_least(uint64_t bytes) { least_ = bytes; }

  // No idle block could serve a request; `useless`: bytes that lie idle in other sizes, which have not come
  // again.
  void note_useless(uint64_t useless) { is_strict_ = is_strict_ || !is_little(useless); }
  // Beside the most that the program had at once.
  bool is_little(uint64_t bytes) const { return bytes <= least_ + peak_ / 16; }
  // A request that no idle block could serve, and the largest block that could have. Whether one of the
  // blocks that were given back would have served it.
  bool note_miss(uint64_t bytes, uint64_t most) {
    missed_ += round_up(bytes, kDriverStep);
    const auto found = find(bytes, most);
    if (found == given_back_.end()) return false;
    given_back_.erase(found);
    return true;
  }
  bool comes_again(uint64_t bytes, uint64_t most) const { return find(bytes, most) != given_back_.end(); }
  void note_given_back(uint64_t bytes) {
    given_back_.emplace(bytes, ++count_);
    in_order_.emplace_back(bytes, count_);
    if (in_order_.size() <= kMost) return;
    given_back_.erase(in_order_.front());
    in_order_.pop_front();
  }
  // Bytes that requests have missed so far, in steps of the driver: the age of idle blocks is measured in
  // them, because a program whose requests are served needs what it keeps.
  uint64_t missed() const { return missed_; }

  void note_live(uint64_t live) { peak_ = std::max(peak_, live); }
  // How many bytes may be kept of sizes that have not come again.
  uint64_t allowance() const { return is_strict_ ? least_ + peak_ / 16 : ~uint64_t{0}; }
  // How many bytes may be held for a request of such a size, after which `live` are with the program.
  uint64_t most_held(uint64_t live) const {
    const uint64_t most = std::max(peak_, live);
    return most + most / 16;
  }
  // Idle blocks go back once requests have missed so many bytes since their free.
  uint64_t patience() const { return kPatience + peak_; }

 private:
  static constexpr uint64_t kPatience = 32 * kMiB;
  using Size = std::pair<uint64_t, uint64_t>;  // bytes, and a number of its own

  std::set<Size>::const_iterator find(uint64_t bytes, uint64_t most) const {
    const auto found = given_back_.lower_bound({bytes, 0});
    return found == given_back_.end() || found->first > most ? given_back_.end() : found;
  }

  std::set<Size> given_back_;
  std::deque<Size> in_order_;  // oldest first, those that a request has matched too
  uint64_t count_ = 0;
  uint64_t missed_ = 0;
  uint64_t peak_ = 0;
  uint64_t least_ = 0;
  bool is_strict_ = false;
};

}  // namespace cupool::dedicated
