// What an export token is exchanged for: descriptors of the chunks under a block that is exported and still
// the same one, or nothing.
#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <vector>

#include "pool_world.hpp"
#include "share/lender.hpp"

using namespace cupool;
using namespace cupool::test;

namespace {

struct LenderWorld : PoolWorld {
  LenderWorld() { use_mapped(); }
  // Whatever was lent, no chunk is kept for it.
  ~LenderWorld() { CHECK(mapping.retained() == 0); }

  share::ExportToken token(driver::Address address, uint64_t bytes,
                           memory::Taint reason = memory::Taint::kExported) {
    REQUIRE(memory.taint(address, reason));
    share::ExportToken made{1, 2, address, bytes};
    memory.with_mark(address, [&](const memory::Mark& mark) { made.life = mark.life; });
    return made;
  }
  // The chunk numbers that one request brings; closes the descriptors.
  std::vector<uint64_t> lend(const share::ExportToken& token, uint32_t first = 0, uint32_t most = 32) {
    share::Loan loan;
    std::vector<uint64_t> numbers;
    if (!lender.lend(token, first, most, &loan)) return numbers;
    for (uint32_t i = 0; i < loan.reply.count; ++i) {
      numbers.push_back(0);
      REQUIRE(pread(loan.descriptors[i], &numbers.back(), 8, 0) == 8);
      close(loan.descriptors[i]);
    }
    reply = loan.reply;
    return numbers;
  }
  // Those of the chunks that lie under a range.
  std::vector<uint64_t> chunks_under(driver::Address start, uint64_t bytes) {
    std::vector<uint64_t> numbers;
    for (const auto& [at, one] : mapping.mapped) {
      if (at < start + bytes && at + one.bytes > start) numbers.push_back(static_cast<uint64_t>(one.chunk));
    }
    return numbers;
  }
  static size_t open_files() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<size_t>(std::distance(begin(all), end(all)));
  }

  share::Lender lender{memory, mapping};
  share::Reply reply = {};
};

constexpr uint64_t kBlock = 40 * kMiB;

}  // namespace

TEST_CASE_METHOD(LenderWorld, "an export token brings the chunks under its block, in their order") {
  for (const uint64_t bytes : {uint64_t{3000}, 3 * kMiB + 1, kBlock}) {
    const driver::Address block = allocate(bytes);
    const auto numbers = lend(token(block, bytes));
    CHECK(numbers == chunks_under(block, bytes));
    CHECK(reply.total == numbers.size());
    const mapped::Part first = memory.pools().chunk_at(block);
    CHECK(reply.offset == block - first.start);
    CHECK(reply.bytes[0] == first.bytes);
  }
}

TEST_CASE_METHOD(LenderWorld, "what is lent lies at no number that the program's next open expects") {
  const driver::Address block = allocate(kBlock);
  share::Loan loan;
  REQUIRE(lender.lend(token(block, kBlock), 0, 32, &loan));
  REQUIRE(loan.reply.count > 1);
  for (uint32_t i = 0; i < loan.reply.count; ++i) {
    CHECK(loan.descriptors[i] >= 500);
    CHECK(fcntl(loan.descriptors[i], F_GETFD) == FD_CLOEXEC);
    close(loan.descriptors[i]);
  }
}

TEST_CASE_METHOD(LenderWorld, "the chunks of a block come in as many parts as are asked for") {
  const driver::Address block = allocate(kBlock);
  const share::ExportToken exported = token(block, kBlock);
  const auto all = chunks_under(block, kBlock);
  REQUIRE(all.size() > 2);
  std::vector<uint64_t> numbers;
  while (numbers.size() < all.size()) {
    const auto part = lend(exported, static_cast<uint32_t>(numbers.size()), 2);
    REQUIRE(!part.empty());
    CHECK(part.size() <= 2);
    CHECK(reply.total == all.size());
    numbers.insert(numbers.end(), part.begin(), part.end());
  }
  CHECK(numbers == all);
  CHECK(lend(exported, static_cast<uint32_t>(all.size())).empty());
  CHECK(lend(exported, ~0u).empty());
}

TEST_CASE_METHOD(LenderWorld, "only the block that was exported is lent") {
  const driver::Address block = allocate(kBlock);
  const share::ExportToken exported = token(block, kBlock);
  const driver::Address private_block = allocate(kBlock);
  share::ExportToken other = exported;
  SECTION("not one that was never exported") { other.start = private_block; }
  SECTION("not one that was marked for another reason") {
    other = token(private_block, kBlock, memory::Taint::kDmaBuf);
  }
  SECTION("not a part of it") { other.bytes -= 1; }
  SECTION("not more than it") { other.bytes += 1; }
  SECTION("not from its inside") { other.start += 512; }
  SECTION("not another life of it") { ++other.life; }
  SECTION("not memory of others") { other.start = 0x1000; }
  const size_t before = open_files();
  CHECK(lend(other).empty());
  CHECK(open_files() == before);
}

TEST_CASE_METHOD(LenderWorld, "a block that was freed is not lent, nor is the next one at its place") {
  const driver::Address block = allocate(kBlock);
  const share::ExportToken exported = token(block, kBlock);
  free(block);
  CHECK(lend(exported).empty());
  // The memory went back, and the addresses are used again.
  const driver::Address next = allocate(kBlock);
  CHECK(next == block);
  CHECK(lend(exported).empty());
  token(next, kBlock);
  CHECK(lend(exported).empty());
}

TEST_CASE_METHOD(LenderWorld, "a block that is freed while its chunks are exported is not lent") {
  const driver::Address block = allocate(kBlock);
  const share::ExportToken exported = token(block, kBlock);
  const size_t before = open_files();
  bool is_freed = false;
  mapping.on_retain = [&] {
    if (is_freed) return;
    is_freed = true;
    free(block);
    allocate(kBlock);
  };
  CHECK(lend(exported).empty());
  CHECK(is_freed);
  CHECK(open_files() == before);
}

TEST_CASE_METHOD(LenderWorld, "memory that the driver does not export is not lent") {
  const driver::Address block = allocate(kBlock);
  const share::ExportToken exported = token(block, kBlock);
  CHECK(lender.can_lend(block));
  mapping.fail_export = driver::kNotSupported;
  CHECK_FALSE(lender.can_lend(block));
  CHECK(lend(exported).empty());
  CHECK_FALSE(lender.can_lend(0x1000));
}

TEST_CASE_METHOD(LenderWorld, "the chunk at an address is found from its first byte to its last") {
  const driver::Address block = allocate(kBlock);
  const mapped::Part chunk = memory.pools().chunk_at(block);
  REQUIRE(chunk.bytes != 0);
  for (const driver::Address at : {chunk.start, chunk.start + chunk.bytes - 1}) {
    const mapped::Part found = memory.pools().chunk_at(at);
    CHECK((found.start == chunk.start && found.bytes == chunk.bytes));
  }
  CHECK(memory.pools().chunk_at(chunk.start + chunk.bytes).start == chunk.start + chunk.bytes);
  CHECK(memory.pools().chunk_at(0x1000).bytes == 0);
}
