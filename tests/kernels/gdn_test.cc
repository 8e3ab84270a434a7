// GatedDeltaNet: convolution, gates, recurrence, state pages.
#include "tests/kernels/gdn_reference.h"
#include "tests/kernels/rig.h"

#include <cmath>
#include <vector>

namespace troupe::testing {
namespace {

class Gdn : public OnEverySet {};
TROUPE_ON_EVERY_SET(Gdn);

// Digits of the model page, which need fp32.
class GdnPage : public OnEverySet {};
TROUPE_ON_FP32_SETS(GdnPage);

// One layer with `pages` pages; the first is zero, the others are made up.
class Layer final {
 public:
  Layer(const KernelSet& set, Activation act, const Shape& shape, std::uint32_t pages)
      : set_(set), shape_(shape), rig(act) {
    pages_ = rig.room(pages * shape.page_bytes(), Arena::kPages);
    for (std::uint32_t page = 0; page < pages; ++page) {
      const bool zero = page == kZeroPage;
      const std::vector<float> state =
          zero ? std::vector<float>(shape.state_count()) : noise(100 + page, shape.state_count());
      const std::vector<float> window =
          zero ? std::vector<float>(shape.window_count()) : noise(200 + page, shape.window_count());
      std::memcpy(rig.at<float>(state_ref(page)), state.data(), state.size() * sizeof(float));
      std::memcpy(rig.at<float>(window_ref(page)), window.data(), window.size() * sizeof(float));
    }
  }

  // The convolution, then the scan, over inputs of `seed` for all rows of the rig's segments.
  void run(const std::vector<float>& qkv,
           const std::vector<float>& ba,
           Order order = Order::kAtOnce) {
    const std::size_t rows = rig.rows.size();
    GdnConvArgs conv;
    conv.qkv = rig.put(qkv);
    conv.ba = rig.put(ba);
    conv.conv = rig.put(noise(5, shape_.taps * shape_.channels()));
    conv.a_coefficient = rig.put(coefficients());
    conv.dt_bias = rig.put(noise(6, shape_.value_heads));
    conv.q = rig.room(rows * shape_.key_width() * 4);
    conv.k = rig.room(rows * shape_.key_width() * 4);
    conv.v = rig.room(rows * shape_.value_width() * 4);
    conv.decay = rig.room(rows * shape_.value_heads * 4);
    conv.beta = rig.room(rows * shape_.value_heads * 4);
    copy_shape(conv);
    rig.run(set_, KernelId::kGdnConv, &conv, order);
    conv_ = conv;
    GdnScanArgs args{.q = conv.q,
                     .k = conv.k,
                     .v = conv.v,
                     .decay = conv.decay,
                     .beta = conv.beta,
                     .qkv = conv.qkv,
                     .out = rig.room(rows * shape_.value_width() * 4)};
    copy_shape(args);
    args.state_offset = 0;
    rig.run(set_, KernelId::kGdnScan, &args, order);
    out_ = args.out;
  }

  [[nodiscard]] std::vector<float> conv_outputs() {
    std::vector<float> all;
    const std::size_t rows = rig.rows.size();
    append(all, rig.get<float>(conv_.q, rows * shape_.key_width()));
    append(all, rig.get<float>(conv_.k, rows * shape_.key_width()));
    append(all, rig.get<float>(conv_.v, rows * shape_.value_width()));
    append(all, rig.get<float>(conv_.decay, rows * shape_.value_heads));
    append(all, rig.get<float>(conv_.beta, rows * shape_.value_heads));
    return all;
  }
  [[nodiscard]] std::vector<float> out() {
    return rig.get<float>(out_, rig.rows.size() * shape_.value_width());
  }
  [[nodiscard]] std::vector<float> state(std::uint32_t page) {
    return rig.get<float>(state_ref(page), shape_.state_count());
  }
  [[nodiscard]] std::vector<float> window(std::uint32_t page) {
    return rig.get<float>(window_ref(page), shape_.window_count());
  }

  static void append(std::vector<float>& all, const std::vector<float>& more) {
    all.insert(all.end(), more.begin(), more.end());
  }
  [[nodiscard]] std::vector<float> coefficients() const {
    std::vector<float> values = noise(7, shape_.value_heads);
    for (float& value : values) {
      value = -1.5F - value;
    }
    return values;
  }

 private:
  template <class Args>
  void copy_shape(Args& args) const {
    args.key_heads = shape_.key_heads;
    args.value_heads = shape_.value_heads;
    args.key_dim = shape_.key_dim;
    args.value_dim = shape_.value_dim;
    args.taps = shape_.taps;
    args.page_bytes = shape_.page_bytes();
    args.window_offset = shape_.window_offset();
  }
  [[nodiscard]] Ref state_ref(std::uint32_t page) const {
    return {Arena::kPages, pages_.offset + page * shape_.page_bytes()};
  }
  [[nodiscard]] Ref window_ref(std::uint32_t page) const {
    return {Arena::kPages, pages_.offset + page * shape_.page_bytes() + shape_.window_offset()};
  }

  const KernelSet& set_;
  Shape shape_;
  Ref pages_;
  Ref out_;
  GdnConvArgs conv_;

 public:
  Rig rig;
};

std::vector<double> joined(const std::vector<std::vector<double>>& parts) {
  std::vector<double> all;
  for (const auto& part : parts) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

const std::vector<Shape>& shapes() {
  static const std::vector<Shape> kShapes = {
      {},
      {.key_heads = 1, .value_heads = 1, .key_dim = 4, .value_dim = 2},
      {.key_heads = 2, .value_heads = 6, .key_dim = 16, .value_dim = 8},
      {.key_heads = 1, .value_heads = 2, .key_dim = 33, .value_dim = 130},
      {.key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 48, .taps = 3},
  };
  return kShapes;
}

// Segments of 1, 2, 3 and 5 rows, from the zero page and from others.
constexpr std::uint32_t kRows = 11;
void add_segments(Rig& rig) {
  rig.add_segment(1, 0, kZeroPage, 4);
  rig.add_segment(2, 7, 1, 5);
  rig.add_segment(3, 2, 2, 6);
  rig.add_segment(5, 30, 3, 7);
}

TEST_P(Gdn, EqualsThePlainRecurrence) {
  for (const Shape& shape : shapes()) {
    Layer layer(set(), act(), shape, 8);
    add_segments(layer.rig);
    const std::vector<float> qkv = noise(1, kRows * shape.channels());
    const std::vector<float> ba = noise(2, kRows * 2 * std::size_t{shape.value_heads}, 3);
    std::vector<Reference> references;
    for (const StepSegment& segment : layer.rig.segments) {
      Reference reference(shape, layer.state(segment.read_page), layer.window(segment.read_page));
      for (std::uint32_t t = segment.first_row; t < segment.first_row + segment.rows; ++t) {
        reference.row(qkv.data() + t * shape.channels(),
                      ba.data() + t * 2 * std::size_t{shape.value_heads},
                      layer.coefficients());
      }
      references.push_back(reference);
    }

    layer.run(qkv, ba);

    std::vector<std::vector<double>> conv(5);
    std::vector<double> out;
    for (std::size_t s = 0; s < references.size(); ++s) {
      const Reference& r = references[s];
      const std::vector<double>* parts[] = {&r.q, &r.k, &r.v, &r.decay, &r.beta};
      for (std::size_t part = 0; part < 5; ++part) {
        conv[part].insert(conv[part].end(), parts[part]->begin(), parts[part]->end());
      }
      out.insert(out.end(), r.out.begin(), r.out.end());
      const auto page = static_cast<std::uint32_t>(4 + s);
      expect_near(layer.state(page), r.state, Activation::kF32, 1e-5);
      expect_near(layer.window(page), r.window, Activation::kF32, 0);
    }
    expect_near(layer.conv_outputs(), joined(conv), Activation::kF32, 1e-5);
    expect_near(layer.out(), out, Activation::kF32, 1e-5);
  }
}

std::vector<float> everything(const KernelSet& set,
                              Activation act,
                              const Shape& shape,
                              Order order) {
  Layer layer(set, act, shape, 8);
  add_segments(layer.rig);
  layer.run(noise(1, kRows * shape.channels()),
            noise(2, kRows * 2 * std::size_t{shape.value_heads}, 3),
            order);
  std::vector<float> all = layer.conv_outputs();
  Layer::append(all, layer.out());
  for (std::uint32_t page = 0; page < 8; ++page) {
    Layer::append(all, layer.state(page));
    Layer::append(all, layer.window(page));
  }
  return all;
}

TEST_P(Gdn, GivesTheSameBitsOnEverySetInAnyOrder) {
  for (const Shape& shape : shapes()) {
    expect_one_truth([&shape](const KernelSet& which, Order order) {
      return everything(which, act(), shape, order);
    });
  }
}

TEST_P(GdnPage, ConvolutionEqualsTheModelPage) {  // 3.6, step 2; only v is left unnormalised
  const Shape shape{.key_heads = 1, .value_heads = 1, .key_dim = 2, .value_dim = 1};
  Rig rig(act());
  rig.add_segment(5);
  std::vector<float> qkv(5 * 5);
  const std::vector<float> x = {1, -2, .5F, 3, -1};
  for (std::size_t t = 0; t < 5; ++t) {
    qkv[t * 5 + 4] = x[t];
  }
  std::vector<float> taps(4 * 5);
  const std::vector<float> w = {.1F, -.2F, .3F, .5F};
  for (std::size_t tap = 0; tap < 4; ++tap) {
    taps[tap * 5 + 4] = w[tap];
  }
  const Ref page = rig.put(std::vector<float>(shape.page_bytes() / 4), Arena::kPages);
  ASSERT_EQ(page.offset, 0U);
  const GdnConvArgs args{.qkv = rig.put(qkv),
                         .ba = rig.put(std::vector<float>(10)),
                         .conv = rig.put(taps),
                         .a_coefficient = rig.put<float>({-1}),
                         .dt_bias = rig.put<float>({0}),
                         .q = rig.room(40),
                         .k = rig.room(40),
                         .v = rig.room(20),
                         .decay = rig.room(20),
                         .beta = rig.room(20),
                         .key_heads = 1,
                         .value_heads = 1,
                         .key_dim = 2,
                         .value_dim = 1,
                         .taps = 4,
                         .page_bytes = shape.page_bytes(),
                         .window_offset = shape.window_offset()};

  rig.run(set(), KernelId::kGdnConv, &args);

  expect_near(rig.get<float>(args.v, 5),
              {0.311230, -0.232269, -0.201225, 1.925688, 0.052498},
              Activation::kF32,
              1e-6);
}

std::vector<float> unit_vectors(std::vector<float> x, double scale) {
  for (std::size_t t = 0; t < x.size(); t += 4) {
    double squares = 1e-6;
    for (std::size_t i = 0; i < 4; ++i) {
      squares += static_cast<double>(x[t + i]) * static_cast<double>(x[t + i]);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      x[t + i] = static_cast<float>(static_cast<double>(x[t + i]) / std::sqrt(squares) * scale);
    }
  }
  return x;
}

TEST_P(GdnPage, ScanAndNormEqualTheModelPage) {  // 3.6, the test vector
  const Shape shape{.key_heads = 1, .value_heads = 2, .key_dim = 4, .value_dim = 2};
  Layer layer(set(), act(), shape, 2);
  Rig& rig = layer.rig;
  rig.add_segment(3, 0, kZeroPage, 1);
  const std::vector<float> a = {.2F, -1, 1.5F, 0, -.5F, .7F};
  const std::vector<float> b = {.3F, -.6F, 1.2F, .1F, -.4F, 2};
  std::vector<float> decay;
  std::vector<float> beta;
  for (std::size_t i = 0; i < 6; ++i) {
    const double step = std::log1p(std::exp(static_cast<double>(a[i]) + (i % 2 == 0 ? -1 : .5)));
    decay.push_back(static_cast<float>(std::exp(-std::exp(i % 2 == 0 ? 0 : .7) * step)));
    beta.push_back(static_cast<float>(sigmoid(static_cast<double>(b[i]))));
  }
  const Ref qkv = rig.put(std::vector<float>(3 * shape.channels()));
  const Ref q = rig.put(unit_vectors({1, 2, -1, .5F, .5F, -1, 2, 1, -1, .25F, .75F, 2}, 0.5));
  const Ref k = rig.put(unit_vectors({.5F, -.5F, 1, 2, 1, 1, -1, .5F, 2, 0, -.5F, 1}, 1));
  const Ref v = rig.put<float>({1, -1, .5F, 2, 0, 1, -1, 1, 2, .5F, 1, -.5F});
  const GdnScanArgs args{.q = q,
                         .k = k,
                         .v = v,
                         .decay = rig.put(decay),
                         .beta = rig.put(beta),
                         .qkv = qkv,
                         .out = rig.room(12 * 4),
                         .key_heads = 1,
                         .value_heads = 2,
                         .key_dim = 4,
                         .value_dim = 2,
                         .taps = 4,
                         .page_bytes = shape.page_bytes(),
                         .state_offset = 0,
                         .window_offset = shape.window_offset()};
  const GdnNormArgs norm{
      .o = args.out,
      .z = rig.put<float>({.5F, -1, 2, .1F, 1, 1, -.3F, .4F, .2F, -2, 1.5F, -.5F}),
      .weight = rig.put<float>({1.1F, .9F}),
      .out = rig.act_room(12),
      .heads = 2,
      .dim = 2};

  rig.run(set(), KernelId::kGdnScan, &args);
  rig.run(set(), KernelId::kGdnNorm, &norm);

  expect_near(rig.get<float>(args.out, 12),
              {-.024494,
               .024494,
               -.007555,
               -.030219,
               .087852,
               -.258372,
               .126576,
               -.076108,
               .039198,
               -.104234,
               -.028883,
               .016207},
              Activation::kF32,
              2e-6);
  expect_near(rig.get_act(norm.out, 12),
              {-.342068,
               -.241846,
               -.663960,
               -.064757,
               .366103,
               -.880941,
               -.170197,
               -.157058,
               .060210,
               .283999,
               -1.662242,
               -.117464},
              act(),
              3e-6);
  expect_near(layer.state(1),
              {.709494,
               .354922,
               -.037803,
               .386336,
               -.092317,
               -.435187,
               .487058,
               .045150,
               .768735,
               -.385269,
               -.015571,
               .014176,
               -.180087,
               .087359,
               .385344,
               -.188729},
              act(),
              2e-6);
}

// One sequence of 13 rows, cut before the given rows; the state travels through pages. Outputs and
// the last page.
std::vector<float> in_chunks(const KernelSet& set,
                             Activation act,
                             const Shape& shape,
                             const std::vector<std::uint32_t>& cuts,
                             bool in_place) {
  const std::vector<float> qkv = noise(1, 13 * shape.channels());
  const std::vector<float> ba = noise(2, 13 * 2 * std::size_t{shape.value_heads}, 3);
  Layer layer(set, act, shape, 6);
  std::vector<float> out;
  std::uint32_t begin = 0;
  std::uint32_t page = kZeroPage;
  for (std::size_t i = 0; i <= cuts.size(); ++i) {
    const std::uint32_t end = i < cuts.size() ? cuts[i] : 13;
    const std::uint32_t next =
        in_place && page != kZeroPage && end - begin == 1 ? page : page % 5 + 1;
    layer.rig.rows.clear();
    layer.rig.segments.clear();
    layer.rig.add_segment(end - begin, static_cast<std::int32_t>(begin), page, next);
    layer.run({qkv.begin() + static_cast<std::ptrdiff_t>(begin * shape.channels()),
               qkv.begin() + static_cast<std::ptrdiff_t>(end * shape.channels())},
              {ba.begin() + static_cast<std::ptrdiff_t>(begin * 2 * shape.value_heads),
               ba.begin() + static_cast<std::ptrdiff_t>(end * 2 * shape.value_heads)});
    Layer::append(out, layer.out());
    page = next;
    begin = end;
  }
  Layer::append(out, layer.state(page));
  Layer::append(out, layer.window(page));
  return out;
}

TEST_P(Gdn, GivesTheSameBitsHoweverASequenceIsCut) {
  const Shape shape{.key_heads = 1, .value_heads = 2, .key_dim = 16, .value_dim = 100};
  const auto whole = bits_of(in_chunks(set(), act(), shape, {}, false));

  EXPECT_EQ(whole, bits_of(in_chunks(set(), act(), shape, {1, 3, 6}, false)));
  EXPECT_EQ(
      whole,
      bits_of(in_chunks(set(), act(), shape, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, false)));
  EXPECT_EQ(whole,
            bits_of(in_chunks(set(), act(), shape, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, true)));
  EXPECT_EQ(whole, bits_of(in_chunks(set(), act(), shape, {12}, true)));
}

TEST_P(Gdn, KeepsTheStateAfterEveryRowThatAsksForIt) {
  const Shape shape;
  const std::vector<float> qkv = noise(1, 4 * shape.channels());
  const std::vector<float> ba = noise(2, 4 * 2 * std::size_t{shape.value_heads}, 3);
  Layer verify(set(), act(), shape, 6);
  verify.rig.add_segment(4, 9, 1, 5);
  for (std::uint32_t t = 0; t < 3; ++t) {
    verify.rig.rows[t].write_page = 2 + t;
  }
  verify.run(qkv, ba);

  for (std::uint32_t rows = 1; rows <= 4; ++rows) {
    Layer alone(set(), act(), shape, 6);
    alone.rig.add_segment(rows, 9, 1, 5);
    alone.run({qkv.begin(), qkv.begin() + static_cast<std::ptrdiff_t>(rows * shape.channels())},
              {ba.begin(), ba.begin() + static_cast<std::ptrdiff_t>(rows * 2 * shape.value_heads)});
    EXPECT_EQ(bits_of(alone.state(5)), bits_of(verify.state(rows + 1)));
    EXPECT_EQ(bits_of(alone.window(5)), bits_of(verify.window(rows + 1)));
    EXPECT_EQ(bits_of(alone.state(1)), bits_of(verify.state(1)));
  }
}

}  // namespace
}  // namespace troupe::testing
