// One thread of the torture victim. It owns its blocks, and does random things to them that a valid program
// may do: the order that CUDA asks for is always made, and no more. What is freed is freed with its work
// queued.
#pragma once

#include <semaphore.h>

#include <deque>
#include <vector>

#include "torture_world.hpp"

namespace torture {

class Worker {
 public:
  Worker(World& world, unsigned number, std::uint64_t seed) : world_(world), number_(number), random_(seed) {}

  // Until it has done `operations`, or until the clock says `deadline`. Ends early if the driver fails
  // (tolerant).
  void run(std::uint64_t operations, double deadline);

 private:
  void step();
  void allocate();
  void finish_one();  // check, then free at once
  void write_one();
  void read_one();
  void copy();
  void hand_over();
  void receive();
  void wait_somehow();
  void spin();
  void wait_for_own_stream();
  void host_function();
  void capture();
  void relaunch();
  void child();
  void second_context();
  void free_unused(Block& block);
  void free_all();

  // torture_peers.cpp
  void cross();  // something between the devices
  void let_in();
  void allocate_there();
  void visit();
  bool meet();
  bool is_rank() const;
  void end_meetings();
  bool may_take(const Block& block) const;
  void take_by_copy(Block& block);
  bool may_be_freed(Block& block);
  void send_home(Block& block);
  void put_back(Block& block);
  void await_work(Block& block);

  // torture_words.cpp
  void streams_wait();
  void ask_too_much();
  void prepare_words();
  void drop_words();
  bool close_word(CUstream stream);
  void open_word(bool by_host);
  void use_while_closed(std::vector<Block>& made);

  // torture_captures.cpp
  void capture_work(Block& block, const Lease& lease, const Lease* branch);
  void capture_and_allocate(const Lease& lease, bool graph_is_dropped);
  void launch_graph(Block& block);

  // Around whatever the driver waits in, after all other gates.
  Pass waits() { return options.has(kRude) ? Pass() : Pass(world_.gates.words, Side::kCall); }
  Pass unsafe() { return Pass(world_.gates.unsafe, Side::kCall); }
  static void note(const char* what, const Block& block, const Lease& lease) {
    History::note({0, what, block.p, block.bytes, block.value, lease.mark, block.writer});
  }
  bool order_write(Block& block, const Lease& lease);
  bool order_read(Block& block, const Lease& lease);
  void wrote(Block& block, const Lease& lease);
  void fill(Block& block, const Lease& lease);
  void check(Block& block, const Lease& lease);
  void settle(Block& block);  // destroys events that came with the block, once waited for
  bool make_portable(Block& block);
  void pass_on(Block block, Mailbox& mailbox);
  void free_block(Block& block);
  CUresult get_memory(Block& block);
  std::uint64_t random_size();
  Block take_any();
  unsigned fresh_value() { return value_ = (value_ + 1 + static_cast<unsigned>(below(random_, 5))) & 0xff; }

  World& world_;
  const unsigned number_;
  Random random_;
  std::vector<Block> blocks_;
  std::uint64_t live_ = 0;
  unsigned value_ = 0;
  CUevent scratch_ = nullptr;
  bool may_have_children_ = true;
  CUstream meeting_ = nullptr;  // of a rank: has nothing but turns

  // What this thread makes its own stream wait for.
  struct Words {
    unsigned* all = nullptr;  // one for each turn
    CUdeviceptr address = 0;
    unsigned turn = 0;
    CUstream waiting = nullptr, releasing = nullptr;
    bool by_function = false;  // a host function waits, for the last of `answers`
    std::deque<sem_t> answers;
  };
  Words words_;
};

}  // namespace torture
