// SHA-256 (FIPS 180-4), as `sha256sum` prints it: names the bytes that a result was made from. Pure; any thread.
#pragma once
#include <string>
#include <string_view>

namespace vedette::cli {

std::string sha256(std::string_view bytes);  // 64 hexadecimal digits

}  // namespace vedette::cli
