// See account.hpp.
#include "dedicated/account.hpp"

#include "stats/counters.hpp"

namespace cupool::dedicated {

using driver::kSuccess;

void Account::count_freed(const Block& block) const {
  if (tally != nullptr) {
    tally->take_back(block.asked, block.bytes);
  } else {
    stats::count(stats::Counter::managed_frees);
  }
}

Account* Accounts::find(driver::Context context) {
  Guard hold(table_.lock());
  const auto found = all_.find(context);
  return found == all_.end() ? nullptr : &found->second;
}

// So much is kept in any case: small programs are not to wait in each free of a new size.
constexpr uint64_t kLittleOfDevice = 4 * kMiB;

Account* Accounts::open(driver::Context context) {
  if (Account* const account = find(context)) return account;
  int device = 0;
  size_t free = 0;
  size_t total = 0;
  if (driver_.device(&device) != kSuccess || driver_.memory(&free, &total) != kSuccess) return nullptr;
  order::Timeline* const order = order_.of(context);
  if (order == nullptr) return nullptr;
  Guard hold(table_.lock());
  const auto [entry, is_new] = all_.try_emplace(context, context, source_, device, total, *order);
  Account& account = entry->second;
  if (is_new) table_.join(account);
  if (!is_new || source_.is_host_visible()) return &account;
  stats::ThreadTally*& tally = tallies_[device];
  if (tally == nullptr) {
    stats::Device& counts = source_.is_on_device() ? stats::device(device) : stats::spilled(device);
    tally = &counts.add_thread_tally();
  }
  account.tally = tally;
  account.admission.set_least(kLittleOfDevice);
  return &account;
}

void Accounts::close(driver::Context context) {
  Guard hold(table_.lock());
  const auto found = all_.find(context);
  if (found == all_.end()) return;
  table_.leave(found->second);
  all_.erase(found);
}

}  // namespace cupool::dedicated
