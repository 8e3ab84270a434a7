// V16 in plain C++: the definition that the other sets must equal, and what runs where nothing else
// does. Included by vec.h.
#pragma once

namespace troupe::cpu::TROUPE_ISA {

struct V16 {
  float lane[16];
};
struct I16 {
  std::int32_t lane[16];
};
struct M16 {
  bool lane[16];
};

#define TROUPE_EACH(type, expression) \
  type result;                        \
  for (int i = 0; i < 16; ++i) {      \
    result.lane[i] = (expression);    \
  }                                   \
  return result

TROUPE_LANE std::int32_t wrap(std::uint32_t value) {
  return static_cast<std::int32_t>(value);
}
TROUPE_LANE std::uint32_t raw(std::int32_t value) {
  return static_cast<std::uint32_t>(value);
}
TROUPE_LANE std::uint32_t raw(float value) {
  return __builtin_bit_cast(std::uint32_t, value);
}

TROUPE_LANE V16 set1(float value) {
  TROUPE_EACH(V16, value);
}
TROUPE_LANE V16 load(const float* from) {
  TROUPE_EACH(V16, from[i]);
}
TROUPE_LANE V16 load(const bf16* from) {
  TROUPE_EACH(V16, __builtin_bit_cast(float, static_cast<std::uint32_t>(from[i]) << 16));
}

TROUPE_LANE void store(float* to, V16 value) {
  for (int i = 0; i < 16; ++i) {
    to[i] = value.lane[i];
  }
}

TROUPE_LANE void store(bf16* to, V16 value) {
  for (int i = 0; i < 16; ++i) {
    const std::uint32_t b = raw(value.lane[i]);
    const bool nan = (b & 0x7fffffffU) > 0x7f800000U;
    to[i] = static_cast<bf16>(nan ? (b >> 16) | 0x40U : (b + 0x7fffU + ((b >> 16) & 1U)) >> 16);
  }
}

TROUPE_LANE V16 add(V16 a, V16 b) {
  TROUPE_EACH(V16, a.lane[i] + b.lane[i]);
}
TROUPE_LANE V16 sub(V16 a, V16 b) {
  TROUPE_EACH(V16, a.lane[i] - b.lane[i]);
}
TROUPE_LANE V16 mul(V16 a, V16 b) {
  TROUPE_EACH(V16, a.lane[i] * b.lane[i]);
}
TROUPE_LANE V16 div(V16 a, V16 b) {
  TROUPE_EACH(V16, a.lane[i] / b.lane[i]);
}
TROUPE_LANE V16 fma(V16 a, V16 b, V16 c) {
  TROUPE_EACH(V16, __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]));
}
TROUPE_LANE V16 sqrt(V16 a) {
  TROUPE_EACH(V16, __builtin_sqrtf(a.lane[i]));
}
TROUPE_LANE V16 max(V16 a, V16 b) {
  TROUPE_EACH(V16, a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]);
}
TROUPE_LANE V16 min(V16 a, V16 b) {
  TROUPE_EACH(V16, a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]);
}

TROUPE_LANE M16 greater(V16 a, V16 b) {
  TROUPE_EACH(M16, a.lane[i] > b.lane[i]);
}
TROUPE_LANE M16 equal(V16 a, V16 b) {
  TROUPE_EACH(M16, a.lane[i] == b.lane[i]);
}
TROUPE_LANE V16 select(M16 mask, V16 yes, V16 no) {
  TROUPE_EACH(V16, mask.lane[i] ? yes.lane[i] : no.lane[i]);
}
TROUPE_LANE bool any(M16 mask) {
  bool found = false;
  for (int i = 0; i < 16; ++i) {
    found = found || mask.lane[i];
  }
  return found;
}

TROUPE_LANE I16 bits1(std::int32_t value) {
  TROUPE_EACH(I16, value);
}
TROUPE_LANE I16 bits(V16 a) {
  TROUPE_EACH(I16, __builtin_bit_cast(std::int32_t, a.lane[i]));
}
TROUPE_LANE V16 from_bits(I16 a) {
  TROUPE_EACH(V16, __builtin_bit_cast(float, a.lane[i]));
}
TROUPE_LANE I16 bits_add(I16 a, I16 b) {
  TROUPE_EACH(I16, wrap(raw(a.lane[i]) + raw(b.lane[i])));
}
TROUPE_LANE I16 bits_sub(I16 a, I16 b) {
  TROUPE_EACH(I16, wrap(raw(a.lane[i]) - raw(b.lane[i])));
}
TROUPE_LANE I16 bits_and(I16 a, I16 b) {
  TROUPE_EACH(I16, a.lane[i] & b.lane[i]);
}
TROUPE_LANE I16 bits_xor(I16 a, I16 b) {
  TROUPE_EACH(I16, a.lane[i] ^ b.lane[i]);
}
template <int kBits>
TROUPE_LANE I16 shift_left(I16 a) {
  TROUPE_EACH(I16, wrap(raw(a.lane[i]) << kBits));
}
template <int kBits>
TROUPE_LANE I16 shift_right(I16 a) {
  TROUPE_EACH(I16, a.lane[i] >> kBits);
}
TROUPE_LANE V16 to_float(I16 a) {
  TROUPE_EACH(V16, static_cast<float>(a.lane[i]));
}

#undef TROUPE_EACH

// 32 interleaved elements x0 y0 x1 y1 ...: x to `even`, y to `odd`.
template <class T>
TROUPE_LANE void load_pairs(const T* from, V16& even, V16& odd) {
  for (int i = 0; i < 16; ++i) {
    if constexpr (sizeof(T) == 4) {
      even.lane[i] = from[2 * i];
      odd.lane[i] = from[2 * i + 1];
    } else {
      even.lane[i] = __builtin_bit_cast(float, static_cast<std::uint32_t>(from[2 * i]) << 16);
      odd.lane[i] = __builtin_bit_cast(float, static_cast<std::uint32_t>(from[2 * i + 1]) << 16);
    }
  }
}

// The fixed tree: lane l takes lane l+8, then +4, +2, +1.
TROUPE_LANE float reduce_add(V16 a) {
  for (int step = 8; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) {
      a.lane[i] = a.lane[i] + a.lane[i + step];
    }
  }
  return a.lane[0];
}

TROUPE_LANE float reduce_max(V16 a) {
  for (int step = 8; step > 0; step /= 2) {
    for (int i = 0; i < step; ++i) {
      a.lane[i] = a.lane[i] > a.lane[i + step] ? a.lane[i] : a.lane[i + step];
    }
  }
  return a.lane[0];
}

}  // namespace troupe::cpu::TROUPE_ISA
