// What this CPU can do, as the yardstick for a decode or prefill figure. Prints one JSON object.
//
//   g++ -std=c++20 -O3 -march=native -pthread bench/peers/roofline.cc -o roofline && ./roofline
//   [GiB=2] [seconds=0.5] [threads]
//
// With threads: only DRAM and arithmetic, with that many.
// read_gb_s: one buffer, split among the threads, summed with the widest vectors that the compiler
// knows for this CPU, huge pages asked for. fma_gflop_s: independent accumulators in registers, no
// memory at all; bf16_gflop_s the same with AVX512-BF16 products, on CPUs that have them. Each
// figure is [min, median, max] over passes that all threads begin together.
#include <algorithm>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#ifdef __AVX512BF16__
#include <immintrin.h>
#endif
#include <string>
#include <sys/mman.h>
#include <thread>
#include <vector>

namespace {

#ifdef __AVX512F__
constexpr int kVectorBytes = 64;
constexpr int kAccumulators = 24;
#else
constexpr int kVectorBytes = 32;
constexpr int kAccumulators = 12;  // 16 registers
#endif
using Words = std::uint64_t __attribute__((vector_size(kVectorBytes)));
using Floats = float __attribute__((vector_size(kVectorBytes)));
constexpr std::size_t kBlock = 8 * kVectorBytes;

using Steady = std::chrono::steady_clock;

double seconds(Steady::time_point from, Steady::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

// Repeats work(thread) on all threads in step for about `budget` seconds; amount / s of each pass,
// sorted.
std::vector<double> rates(int threads,
                          double budget,
                          double amount,
                          const std::function<void(int)>& work) {
  std::vector<double> found;
  std::atomic<bool> stop{false};
  std::barrier sync(threads);
  const auto body = [&](int thread) {
    work(thread);  // warm
    for (const auto begin = Steady::now(); !stop;) {
      sync.arrive_and_wait();
      const auto from = Steady::now();
      work(thread);
      sync.arrive_and_wait();
      if (thread == 0) {
        const auto to = Steady::now();
        found.push_back(amount / seconds(from, to));
        stop = seconds(begin, to) > budget && found.size() >= 3;
      }
      sync.arrive_and_wait();
    }
  };
  std::vector<std::thread> pool;
  for (int thread = 1; thread < threads; ++thread) {
    pool.emplace_back(body, thread);
  }
  body(0);
  for (auto& thread : pool) {
    thread.join();
  }
  std::sort(found.begin(), found.end());
  return found;
}

void print(const std::string& name, const std::vector<double>& found, bool last) {
  std::printf("  \"%s\": [%.2f, %.2f, %.2f]%s\n",
              name.c_str(),
              found.front() / 1e9,
              found[found.size() / 2] / 1e9,
              found.back() / 1e9,
              last ? "" : ",");
}

void read_all(const char* from, std::size_t bytes, std::size_t repeat) {
  for (std::size_t r = 0; r < repeat; ++r) {
    Words sum[8] = {};
    for (std::size_t at = 0; at < bytes; at += kBlock) {
#pragma GCC unroll 8
      for (std::size_t i = 0; i < 8; ++i) {
        sum[i] ^= *reinterpret_cast<const Words*>(from + at + i * kVectorBytes);
      }
    }
    for (auto& part : sum) {
      asm volatile("" : "+m"(part) : : "memory");  // the sum is used, and the passes are not one
    }
  }
}

std::vector<double> read_rates(
    int threads, double budget, const char* base, std::size_t bytes, std::size_t target) {
  const std::size_t each = bytes / static_cast<std::size_t>(threads) / kBlock * kBlock;
  const std::size_t repeat = std::max<std::size_t>(1, target / each);
  const double amount = static_cast<double>(each * repeat) * threads;
  return rates(threads, budget, amount, [base, each, repeat](int thread) {
    read_all(base + static_cast<std::size_t>(thread) * each, each, repeat);
  });
}

void multiply_add(long rounds) {
  Floats factor = {};
  factor += 1e-3F;
  Floats sum[kAccumulators] = {};
  for (long i = 0; i < rounds; ++i) {
#pragma GCC unroll 24
    for (int j = 0; j < kAccumulators; ++j) {
      sum[j] = factor * factor + sum[j];
      asm volatile("" : "+x"(sum[j]));
    }
    asm volatile("" : "+x"(factor));
  }
}

constexpr long kRounds = 4'000'000;
constexpr double kFlops = 2.0 * kAccumulators * (kVectorBytes / 4) * kRounds;

#ifdef __AVX512BF16__
void multiply_add_bf16(long rounds) {
  __m512bh factor = {};
  __m512 sum[kAccumulators] = {};
  for (long i = 0; i < rounds; ++i) {
#pragma GCC unroll 24
    for (int j = 0; j < kAccumulators; ++j) {
      sum[j] = _mm512_dpbf16_ps(sum[j], factor, factor);
      asm volatile("" : "+x"(sum[j]));
    }
    asm volatile("" : "+x"(factor));
  }
}
#endif

void print_arithmetic(const std::string& tail, int threads, double budget, bool last) {
#ifdef __AVX512BF16__
  print("bf16_gflop_s" + tail,
        rates(threads, budget, 2 * kFlops * threads, [](int) { multiply_add_bf16(kRounds); }),
        false);
#endif
  print("fma_gflop_s" + tail,
        rates(threads, budget, kFlops * threads, [](int) { multiply_add(kRounds); }),
        last);
}

}  // namespace

int main(int argc, char** argv) {
  constexpr std::size_t kHuge = std::size_t{2} << 20;
  const double gib = argc > 1 ? std::atof(argv[1]) : 2.0;
  const double budget = argc > 2 ? std::atof(argv[2]) : 0.5;
  const auto bytes = static_cast<std::size_t>(gib * (1 << 30)) / kHuge * kHuge;
  void* map =
      mmap(nullptr, bytes + kHuge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (map == MAP_FAILED) {
    std::perror("mmap");
    return 1;
  }
  char* base =
      reinterpret_cast<char*>((reinterpret_cast<std::uintptr_t>(map) + kHuge - 1) / kHuge * kHuge);
  madvise(base, bytes, MADV_HUGEPAGE);
  for (std::size_t at = 0; at < bytes; at += 4096) {
    base[at] = static_cast<char>(at >> 12);
  }
  const int all = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  const int only = argc > 3 ? std::atoi(argv[3]) : 0;
  std::printf("{\n");
  if (only > 0) {
    const std::string tail = "_t" + std::to_string(only);
    print("dram_read_gb_s" + tail, read_rates(only, budget, base, bytes, 0), false);
    print_arithmetic(tail, only, budget, true);
    std::printf("}\n");
    return 0;
  }
  for (int threads = 1; threads <= all; threads = threads == all ? all + 1 : all) {
    const std::string tail = "_t" + std::to_string(threads);
    const auto share = static_cast<std::size_t>(threads);
    const std::size_t target = std::size_t{1} << 28;
    print("dram_read_gb_s" + tail, read_rates(threads, budget, base, bytes, 0), false);
    print("l3_read_gb_s_8MiB_a_thread" + tail,
          read_rates(threads, budget, base, share << 23, target),
          false);
    print("l2_read_gb_s_256KiB_a_thread" + tail,
          read_rates(threads, budget, base, share << 18, target),
          false);
    print_arithmetic(tail, threads, budget, threads == all);
  }
  std::printf("}\n");
}
