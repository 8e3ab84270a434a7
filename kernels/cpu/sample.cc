#include "kernels/cpu/sample.h"

#include "runtime/base/error.h"
#include "runtime/base/math.h"
#include "runtime/base/sources.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace troupe::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// An id with its logit, later its weight. Ordered by falling value, then rising id.
struct Candidate {
  float value;
  std::uint32_t id;
};
bool before(const Candidate& a, const Candidate& b) {
  return a.value != b.value ? a.value > b.value : a.id < b.id;
}

// The memory of one row.
struct Workspace {
  float* logits;          // a copy, when the parameters change some
  Candidate* candidates;  // room for every id
  std::uint64_t* seen;    // one bit per id
  const SampleMath* math;
};

Workspace workspace_in(std::byte* scratch, std::uint32_t vocab, const SampleMath& math) {
  const std::size_t padded = (std::size_t{vocab} + 63) / 64 * 64;
  Workspace work{};
  work.candidates = reinterpret_cast<Candidate*>(scratch);
  work.logits = reinterpret_cast<float*>(scratch + padded * sizeof(Candidate));
  work.seen =
      reinterpret_cast<std::uint64_t*>(scratch + padded * (sizeof(Candidate) + sizeof(float)));
  work.math = &math;
  return work;
}
static_assert(std::size_t{kSampleVocabMax} * (sizeof(Candidate) + sizeof(float)) +
                  kSampleVocabMax / 8 + 1024 <=
              kScratchBytes);

bool changes_logits(const SampleParams& p) {
  const bool repetition = p.repetition_penalty != 1.0F &&
                          (p.prompt_end > p.prompt_begin || p.generated_end > p.generated_begin);
  const bool counts =
      (p.presence_penalty != 0 || p.frequency_penalty != 0) && p.generated_end > p.generated_begin;
  return p.bias_end > p.bias_begin || repetition || counts;
}

// Divides or multiplies, once per id however often it is listed.
void repetition_penalty(const TokenValue* list,
                        std::size_t count,
                        std::uint32_t valid,
                        float penalty,
                        const Workspace& work) {
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint32_t id = list[i].token;
    if (id >= valid || ((work.seen[id / 64] >> (id % 64)) & 1U) != 0) {
      continue;
    }
    work.seen[id / 64] |= std::uint64_t{1} << (id % 64);
    float& logit = work.logits[id];
    logit = logit > 0 ? logit / penalty : logit * penalty;
  }
}

// Bias, then penalties, on a copy.
const float* changed_logits(const float* logits,
                            std::uint32_t valid,
                            const SampleParams& p,
                            const TokenValue* values,
                            const Workspace& work) {
  std::memcpy(work.logits, logits, std::size_t{valid} * sizeof(float));
  for (std::uint32_t i = p.bias_begin; i < p.bias_end; ++i) {
    if (values[i].token < valid) {
      work.logits[values[i].token] += values[i].value;
    }
  }
  if (p.repetition_penalty != 1.0F) {
    std::memset(work.seen, 0, (std::size_t{valid} + 63) / 64 * sizeof(std::uint64_t));
    repetition_penalty(
        values + p.prompt_begin, p.prompt_end - p.prompt_begin, valid, p.repetition_penalty, work);
    repetition_penalty(values + p.generated_begin,
                       p.generated_end - p.generated_begin,
                       valid,
                       p.repetition_penalty,
                       work);
  }
  for (std::uint32_t i = p.generated_begin; i < p.generated_end; ++i) {
    if (values[i].token < valid && values[i].value > 0) {
      work.logits[values[i].token] -= p.presence_penalty + p.frequency_penalty * values[i].value;
    }
  }
  return work.logits;
}

std::uint32_t first_equal(const float* logits, std::uint32_t valid, float value) {
  std::uint32_t id = 0;
  while (id + 1 < valid && !(logits[id] == value)) {
    ++id;
  }
  return id;
}

// The best `wanted` ids above -infinity in order. Keeps a buffer of those better than the worst of
// the best so far.
std::uint32_t best(const float* logits, std::uint32_t valid, std::uint32_t wanted, Candidate* out) {
  const std::size_t room = std::max<std::size_t>(std::size_t{wanted} * 4, 1024);
  float threshold = -kInfinity;
  std::size_t count = 0;
  for (std::uint32_t id = 0; id < valid; ++id) {
    if (!(logits[id] > threshold)) {
      continue;  // an equal of the worst kept one has a higher id, and loses
    }
    out[count++] = {logits[id], id};
    if (count == room) {
      std::nth_element(out, out + (wanted - 1), out + count, before);
      threshold = out[wanted - 1].value;
      count = wanted;
    }
  }
  const std::size_t kept = std::min<std::size_t>(count, wanted);
  if (count > kept) {
    std::nth_element(out, out + kept, out + count, before);
  }
  std::sort(out, out + kept, before);
  return static_cast<std::uint32_t>(kept);
}

double sum_of_exponentials(
    const float* logits, std::uint32_t valid, float top, float scale, const SampleMath& math) {
  double sum = 0;
  for (std::uint32_t first = 0; first < valid; first += kSampleChunk) {
    sum += static_cast<double>(
        math.exp_sum(logits + first, std::min(kSampleChunk, valid - first), top, scale));
  }
  return sum;
}

// Uniform in [0, 1).
double draw(const SampleParams& p, std::int32_t position) {
  const auto block = philox4x32(p.key, {static_cast<std::uint32_t>(position), p.choice, 1U, 0U});
  const std::uint64_t bits = (std::uint64_t{block[1]} << 32) | block[0];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

// All ids, ascending: the first whose running sum exceeds the target.
std::uint32_t choose_of_all(const float* logits,
                            std::uint32_t valid,
                            float top,
                            float scale,
                            double uniform,
                            const SampleMath& math) {
  const double target = uniform * sum_of_exponentials(logits, valid, top, scale, math);
  double sum = 0;
  std::uint32_t last = 0;  // last id seen with any weight
  for (std::uint32_t first = 0; first < valid; first += kSampleChunk) {
    const std::uint32_t n = std::min(kSampleChunk, valid - first);
    const double after = sum + static_cast<double>(math.exp_sum(logits + first, n, top, scale));
    if (after <= target && first + n < valid) {
      sum = after;
      continue;
    }
    float weights[kSampleChunk];
    math.exp_each(logits + first, weights, n, top, scale);
    for (std::uint32_t i = 0; i < n; ++i) {
      sum += static_cast<double>(weights[i]);
      if (weights[i] > 0) {
        last = first + i;
        if (sum > target) {
          return last;
        }
      }
    }
    // The chunk's own sum was rounded differently: its last id with weight takes the difference,
    // unless it has none.
    if (last >= first) {
      return last;
    }
    sum = after;
  }
  return last;
}

// Values become weights exp((value - top) * scale).
void weigh(
    Candidate* candidates, std::uint32_t count, float top, float scale, const SampleMath& math) {
  float values[kSampleChunk];
  for (std::uint32_t first = 0; first < count; first += kSampleChunk) {
    const std::uint32_t n = std::min(kSampleChunk, count - first);
    for (std::uint32_t i = 0; i < n; ++i) {
      values[i] = candidates[first + i].value;
    }
    math.exp_each(values, values, n, top, scale);
    for (std::uint32_t i = 0; i < n; ++i) {
      candidates[first + i].value = values[i];
    }
  }
}

struct Cut {
  std::uint32_t count;
  bool certain;  // no candidate beyond the list could belong to the kept ones
};

// How many of the weighed candidates top-p, then min-p keep (at least one), out of candidates that
// together weigh `total`.
Cut cut(const Candidate* candidates, std::uint32_t count, double total, const SampleParams& p) {
  Cut result{count, false};
  if (p.top_p < 1.0F) {
    double sum = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
      sum += static_cast<double>(candidates[i].value);
      if (sum >= static_cast<double>(p.top_p) * total) {
        result = {i + 1, true};
        break;
      }
    }
  }
  if (p.min_p > 0) {
    // The best candidate weighs 1.
    while (result.count > 1 && candidates[result.count - 1].value < p.min_p) {
      --result.count;
      result.certain = true;
    }
  }
  return result;
}

std::uint32_t choose_of_best(const float* logits,
                             std::uint32_t valid,
                             float top,
                             float scale,
                             const SampleParams& p,
                             double uniform,
                             const Workspace& work) {
  const bool top_k = p.top_k > 0 && p.top_k < valid;
  double total = top_k ? 0 : sum_of_exponentials(logits, valid, top, scale, *work.math);
  std::uint32_t wanted = top_k ? p.top_k : std::min<std::uint32_t>(256, valid);
  Cut kept{};
  while (true) {
    const std::uint32_t count = best(logits, valid, wanted, work.candidates);
    weigh(work.candidates, count, top, scale, *work.math);
    if (top_k) {
      for (std::uint32_t i = 0; i < count; ++i) {
        total += static_cast<double>(work.candidates[i].value);
      }
    }
    kept = cut(work.candidates, count, total, p);
    if (kept.certain || top_k || count < wanted || wanted == valid) {
      break;
    }
    wanted = wanted > valid / 8 ? valid : wanted * 8;
  }
  double sum = 0;
  for (std::uint32_t i = 0; i < kept.count; ++i) {
    sum += static_cast<double>(work.candidates[i].value);
  }
  const double target = uniform * sum;
  double running = 0;
  std::uint32_t last = 0;
  for (std::uint32_t i = 0; i < kept.count && !(running > target); ++i) {
    running += static_cast<double>(work.candidates[i].value);
    last = work.candidates[i].value > 0 ? i : last;
  }
  return work.candidates[last].id;
}

// The forced token, or -1 where choosing would have no answer either.
std::int32_t forced(const float* raw,
                    std::uint32_t valid,
                    const SampleParams& p,
                    const Workspace& work) {
  const float top = work.math->maximum(raw, valid);
  return std::isnan(top) || top == -kInfinity ? -1 : p.forced;
}

// The token, or -1.
std::int32_t choose(const float* logits,
                    std::uint32_t valid,
                    const SampleParams& p,
                    std::int32_t position,
                    const Workspace& work) {
  const float top = work.math->maximum(logits, valid);
  if (std::isnan(top) || top == -kInfinity) {
    return -1;
  }
  const float scale = 1.0F / p.temperature;
  if (!(p.temperature > 0) || top == kInfinity || scale == kInfinity) {
    return static_cast<std::int32_t>(first_equal(logits, valid, top));
  }
  const double uniform = draw(p, position);
  const bool all = (p.top_k == 0 || p.top_k >= valid) && !(p.top_p < 1.0F) && !(p.min_p > 0);
  const std::uint32_t id = all ? choose_of_all(logits, valid, top, scale, uniform, *work.math)
                               : choose_of_best(logits, valid, top, scale, p, uniform, work);
  return static_cast<std::int32_t>(id);
}

// Log probabilities of the raw logits: of the token and of the best few.
void report(const float* logits,
            std::uint32_t valid,
            const SampleParams& p,
            const Workspace& work,
            SampleResult& result) {
  const float top = work.math->maximum(logits, valid);
  if (std::isnan(top) || std::isinf(top)) {
    return;
  }
  const double log_sum = log_d(sum_of_exponentials(logits, valid, top, 1.0F, *work.math));
  const auto log_probability = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit) - static_cast<double>(top) - log_sum);
  };
  if (p.want_logprob != 0) {
    const bool padding = static_cast<std::uint32_t>(result.token) >= valid;
    result.logprob = padding ? -kInfinity : log_probability(logits[result.token]);
  }
  const std::uint32_t wanted = std::min({p.top_logprobs, kTopLogprobs, valid});
  if (wanted == 0) {
    return;
  }
  result.top_count = best(logits, valid, wanted, work.candidates);
  for (std::uint32_t i = 0; i < result.top_count; ++i) {
    result.top[i] = {work.candidates[i].id, log_probability(work.candidates[i].value)};
  }
}

}  // namespace

std::uint32_t sample_items(const KernelEnv& env, const void* args) {
  TROUPE_CHECK(static_cast<const SampleArgs*>(args)->vocab <= kSampleVocabMax,
               "a vocabulary larger than kSampleVocabMax needs a larger kScratchBytes");
  return static_cast<std::uint32_t>(env.step->sampled.size());
}

void sample_rows(const KernelEnv& env,
                 const SampleArgs& args,
                 std::uint32_t begin,
                 std::uint32_t end,
                 std::byte* scratch,
                 const SampleMath& math) {
  const StepTable& step = *env.step;
  const Workspace work = workspace_in(scratch, args.vocab, math);
  for (std::uint32_t item = begin; item < end; ++item) {
    const SampledRow& row = step.sampled[item];
    const float* raw = env.at<const float>(args.logits) + std::size_t{item} * args.vocab;
    SampleResult result;
    if (row.params.forced >= 0) {
      result.token = forced(raw, args.valid, row.params, work);
    } else {
      const float* logits =
          changes_logits(row.params)
              ? changed_logits(raw, args.valid, row.params, step.values.data(), work)
              : raw;
      result.token = choose(logits, args.valid, row.params, step.rows[row.row].position, work);
    }
    if (result.token >= 0 && (row.params.want_logprob != 0 || row.params.top_logprobs > 0)) {
      report(raw, args.valid, row.params, work, result);
    }
    step.results[item] = result;
  }
}

}  // namespace troupe::cpu
