// Vector types and loads shared by the kernels. Compiled once per Highway target.
#if defined(MSPROBE_KERNELS_VEC_INL_H_) == defined(HWY_TARGET_TOGGLE)
#  ifdef MSPROBE_KERNELS_VEC_INL_H_
#    undef MSPROBE_KERNELS_VEC_INL_H_
#  else
#    define MSPROBE_KERNELS_VEC_INL_H_
#  endif

#  include <hwy/highway.h>

#  include <cstddef>
#  include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace msprobe::kernels {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::ScalableTag<float>;
using DD = hn::ScalableTag<double>;
using VF = hn::Vec<DF>;
using VD = hn::Vec<DD>;
static_assert(HWY_HAVE_FLOAT64 && HWY_TARGET != HWY_SCALAR, "vectors of two doubles are needed");

// Upper bounds of the lanes of VF and VD, for buffers.
inline constexpr size_t kMaxFloats = HWY_MAX_BYTES / sizeof(float);
inline constexpr size_t kMaxDoubles = HWY_MAX_BYTES / sizeof(double);

// Bit patterns of float16 and bfloat16.
struct Half {
  uint16_t bits;
};
struct Brain {
  uint16_t bits;
};

HWY_INLINE VD LowerAsDouble(VF v) { return hn::PromoteTo(DD(), hn::LowerHalf(hn::Half<DF>(), v)); }
HWY_INLINE VD UpperAsDouble(VF v) { return hn::PromoteTo(DD(), hn::UpperHalf(hn::Half<DF>(), v)); }

// Sum over the lanes.
HWY_INLINE double Total(VD v) { return hn::GetLane(hn::SumOfLanes(DD(), v)); }
HWY_INLINE double Total(VF v) { return Total(hn::Add(LowerAsDouble(v), UpperAsDouble(v))); }

// N halves as float. Exact; the vector library's emulation without F16C reads infinities and NaN as
// numbers, so that case is done here: integer to float keeps subnormals exact whatever the flush
// mode.
HWY_INLINE VF HalvesAsFloat(const uint16_t* p) {
  const DF df;
#  if HWY_TARGET == HWY_SSE4 || HWY_TARGET == HWY_SSSE3 || HWY_TARGET == HWY_EMU128 || \
      HWY_TARGET == HWY_SCALAR
  const hn::RebindToUnsigned<DF> du;
  const hn::RebindToSigned<DF> di;
  const auto bits = hn::PromoteTo(du, hn::LoadU(hn::Rebind<uint16_t, DF>(), p));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)));
  const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFu));
  const auto steps = hn::ConvertTo(df, hn::BitCast(di, magnitude));
  const auto subnormal = hn::BitCast(du, hn::Mul(steps, hn::Set(df, 0x1p-24f)));
  const auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(du, (127u - 15u) << 23));
  const auto special = hn::Or(hn::ShiftLeft<13>(magnitude), hn::Set(du, 0x7F800000u));
  const auto is_special = hn::Gt(hn::BitCast(di, magnitude), hn::Set(di, 0x7BFF));
  const auto is_subnormal = hn::Lt(hn::BitCast(di, magnitude), hn::Set(di, 0x0400));
  const auto finite = hn::IfThenElse(hn::RebindMask(du, is_subnormal), subnormal, normal);
  const auto value = hn::IfThenElse(hn::RebindMask(du, is_special), special, finite);
  return hn::BitCast(df, hn::Or(value, sign));
#  else
  return hn::PromoteTo(
      df, hn::LoadU(hn::Rebind<hwy::float16_t, DF>(), reinterpret_cast<const hwy::float16_t*>(p)));
#  endif
}

// 2N elements as two vectors of float, in any order (the same for equal types).
HWY_INLINE void LoadPair(const float* p, VF* v0, VF* v1) {
  const DF df;
  *v0 = hn::LoadU(df, p);
  *v1 = hn::LoadU(df, p + hn::Lanes(df));
}
HWY_INLINE void LoadPair(const Half* p, VF* v0, VF* v1) {
  const uint16_t* bits = reinterpret_cast<const uint16_t*>(p);
  *v0 = HalvesAsFloat(bits);
  *v1 = HalvesAsFloat(bits + hn::Lanes(DF()));
}
// bfloat16 is the upper half of float: even elements by a shift, odd ones by a mask.
HWY_INLINE void LoadPair(const Brain* p, VF* v0, VF* v1) {
  const DF df;
  const hn::RebindToUnsigned<DF> du;
  const auto words =
      hn::BitCast(du, hn::LoadU(hn::ScalableTag<uint16_t>(), reinterpret_cast<const uint16_t*>(p)));
  *v0 = hn::BitCast(df, hn::ShiftLeft<16>(words));
  *v1 = hn::BitCast(df, hn::And(words, hn::Set(du, 0xFFFF0000u)));
}

}  // namespace
// NOLINTNEXTLINE(google-readability-namespace-comments)
}  // namespace HWY_NAMESPACE
}  // namespace msprobe::kernels
HWY_AFTER_NAMESPACE();

#endif  // include guard that lets each target in once
