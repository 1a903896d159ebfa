// Numbers of the zip format (PKWARE APPNOTE 6.3), shared by reader and writer.
#pragma once

#include <cstdint>

namespace msprobe::archive {

inline constexpr uint32_t kLocalSignature = 0x04034b50;
inline constexpr uint32_t kCentralSignature = 0x02014b50;
inline constexpr uint32_t kEndSignature = 0x06054b50;
inline constexpr uint32_t kEnd64Signature = 0x06064b50;
inline constexpr uint32_t kLocator64Signature = 0x07064b50;

// Sizes of the fixed parts, signatures included.
inline constexpr uint64_t kLocalSize = 30;
inline constexpr uint64_t kCentralSize = 46;
inline constexpr uint64_t kEndSize = 22;
inline constexpr uint64_t kEnd64Size = 56;
inline constexpr uint64_t kLocator64Size = 20;

inline constexpr uint16_t kZip64Extra = 0x0001;
inline constexpr uint16_t kMethodStored = 0;
inline constexpr uint16_t kMethodDeflated = 8;
inline constexpr uint32_t kMax32 = 0xFFFFFFFF;  // "look into the zip64 extra field"
inline constexpr uint16_t kMax16 = 0xFFFF;

}  // namespace msprobe::archive
